package dev.devexchange;

/** Whether a call may copy the data. */
public enum Copy {
    /** Refuse rather than copy: {@link Status#COPY_REQUIRED}. */
    NEVER(0),
    /** Copy only if a view is not possible. */
    IF_NEEDED(1),
    /** Always make a copy. */
    ALWAYS(2);

    /** {@code DEVX_COPY_…}. */
    final int value;

    Copy(int value) {
        this.value = value;
    }
}
