"""Subinterpreters of CPython, where the package cannot be imported."""

import subprocess
import sys
import textwrap


def test_subinterpreter_is_refused():
    program = '''
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        code = f"""if True:
            import sys
            sys.path[:] = {sys.path!r}
            try:
                import devexchange
            except ImportError as error:
                print("refused:", error, flush=True)
        """
        interpreters.run_string(interpreters.create(), code)
        import devexchange
        interpreters.run_string(interpreters.create(), code)
        print(devexchange.outstanding())
    '''
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["refused", "refused", "0"], done.stdout


def test_release_in_a_subinterpreter():
    """The pending call runs in the subinterpreter, and must not enter the main interpreter from there."""
    program = '''
        import ctypes, sys
        import devexchange
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        memory = bytearray(8)
        managed = devexchange.from_buffer(memory).export_share()
        # With the GIL, and the call that it asks for is made within the call of the interpreter.
        code = f"""if True:
            import ctypes
            deleter = ctypes.c_void_p.from_address({managed} + 16).value
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)({managed})
            for _ in range(1000): pass
        """
        other = interpreters.create()
        interpreters.run_string(other, code)
        devexchange.empty(1)
        memory.append(1)
        interpreters.destroy(other)
        print(devexchange.outstanding())
    '''
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", ""), done
