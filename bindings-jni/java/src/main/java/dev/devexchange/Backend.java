package dev.devexchange;

import java.util.Locale;

/** How the native library is called ({@link DevExchange#backend}). */
enum Backend {
    JNI,
    FFM;

    /** System property: which one it is to be, whatever there is; not set, it is the best. */
    static final String PROPERTY = "devexchange.backend";

    /** What the property says; null if it is not set. */
    static Backend wanted() {
        String name = System.getProperty(PROPERTY);
        if (name == null) {
            return null;
        }
        for (Backend backend : values()) {
            if (backend.toString().equals(name)) {
                return backend;
            }
        }
        throw new IllegalArgumentException(PROPERTY + " is \"" + name + "\": it must be jni or ffm");
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT);
    }
}
