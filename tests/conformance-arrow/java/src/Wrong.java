/** An exchange failed on our side, or its result is not the expected one. */
final class Wrong extends Exception {
    private static final long serialVersionUID = 1;

    Wrong(String how) {
        super(how);
    }
}
