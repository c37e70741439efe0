package dev.devexchange;

import java.util.Objects;

/**
 * Thrown when a call is refused. A refused call takes nothing, releases nothing and writes no output. The text names
 * the field and its value.
 */
public final class DevExchangeException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** A number of {@link Status}. */
    private final int status;

    /** The code of the device driver, or 0. */
    private final int driverCode;

    /** The native library calls this too. */
    DevExchangeException(int status, int driverCode, String message) {
        super(message);
        this.status = status;
        this.driverCode = driverCode;
    }

    private DevExchangeException(int status, String message, boolean traced) {
        super(message, null, traced, traced);
        this.status = status;
        this.driverCode = 0;
    }

    /** An exception that is kept for ever. A stack trace would keep the classes of everybody on the stack. */
    static DevExchangeException withoutTrace(int status, String message) {
        return new DevExchangeException(status, message, false);
    }

    /**
     * Creates a refusal for an {@link Allocator} or a {@link BatchStream.Source} to throw, so that its caller gets this
     * status.
     *
     * @param status one of {@link Status}, not {@link Status#OK}
     * @param message what is wrong: the field, its value, and what was expected
     * @throws IllegalArgumentException if the status is {@link Status#OK}
     */
    public DevExchangeException(int status, String message) {
        this(status, 0, Objects.requireNonNull(message, "message"));
        if (status == Status.OK) {
            throw new IllegalArgumentException("status is " + Status.OK + ": that is no refusal");
        }
    }

    /**
     * The kind of refusal.
     *
     * @return a number of {@link Status}; newer libraries may have more of them
     */
    public int status() {
        return status;
    }

    /**
     * The name of the status, for example {@code DEVX_INVALID_SHAPE}.
     *
     * @return the name, or {@code DEVX_?} for a number without a meaning
     */
    public String statusName() {
        return Status.name(status);
    }

    /**
     * The code of the device driver's call that failed, if that was the reason.
     *
     * @return a {@code CUresult}, or 0
     */
    public int driverCode() {
        return driverCode;
    }

    /** {@return the class, the status and the text} */
    @Override
    public String toString() {
        return getClass().getName() + ": " + shownStatus() + ": " + getMessage();
    }

    /** The name of the status, or its number if the native library cannot be loaded. */
    private String shownStatus() {
        try {
            return statusName();
        } catch (LinkageError unknown) {
            return "status " + status;
        }
    }
}
