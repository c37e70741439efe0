/** An exchange went through, and something is not as it was. */
final class Wrong extends Exception {
    private static final long serialVersionUID = 1;

    Wrong(String how) {
        super(how);
    }
}
