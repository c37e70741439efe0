package dev.devexchange;

/** Names of fields in error messages. */
final class Names {
    /** The most characters that are shown. */
    private static final int MOST = 128;

    private Names() {}

    /** A name in quotes, cut if it would hide the rest of the message. */
    static String shown(String name) {
        if (name.length() <= MOST) {
            return '"' + name + '"';
        }
        int end = Character.isHighSurrogate(name.charAt(MOST - 1)) ? MOST - 1 : MOST;
        return '"' + name.substring(0, end) + "\"…";
    }
}
