package dev.devexchange;

import java.util.Locale;

/** How the native library is called ({@link DevExchange#backend}). */
enum Backend {
    JNI,
    FFM;

    /** The system property that chooses the backend. If it is not set, the best available one is used. */
    static final String PROPERTY = "devexchange.backend";

    /** The backend that the property names; null if it is not set. */
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
