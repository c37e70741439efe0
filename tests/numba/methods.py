"""Runs one module of Numba's own tests and records the result of each of its methods:

    methods.py MODULE RESULTS

RESULTS gets a line of JSON for each method (name, outcome, text) and, if our manager is used, a last one with the
number of its allocations.
"""

import json
import os
import sys
import unittest

PREFIX = "numba.cuda.tests."

# The module whose methods give streams callbacks, and do not wait until these are over.
WITH_CALLBACKS = "cudadrv.test_streams"


class Recorder(unittest.TestResult):
    def __init__(self, results):
        super().__init__()
        self.results = results
        self.seen = set()

    def write(self, test, outcome, text=""):
        # A method that fails in several ways, or in several of its parts, has failed once.
        if test.id() not in self.seen:
            self.seen.add(test.id())
            self.results.write(json.dumps([test.id().removeprefix(PREFIX), outcome, text]) + "\n")

    def addSuccess(self, test):
        self.write(test, "passed")

    def addError(self, test, error):
        # numba-cuda's methods may use pytest's word for it.
        if error[0].__name__ == "Skipped":
            self.addSkip(test, str(error[1]))
            return
        self.write(test, "failed", self._exc_info_to_string(error, test))

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(test, error)

    def addSkip(self, test, reason):
        self.write(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self.write(test, "passed")

    def addUnexpectedSuccess(self, test):
        self.write(test, "failed", "unexpected success")


def main(module, path):
    if module == WITH_CALLBACKS:
        # The last reference to a stream can be dropped in its callback. If Numba then destroyed what waits to be
        # destroyed, the driver would refuse, because CUDA allows no call from a callback. This limit is never reached.
        os.environ["NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT"] = "1000"
    with open(path, "w") as results:
        suite = unittest.defaultTestLoader.loadTestsFromName(PREFIX + module)
        # numba-cuda gives a fresh process 4 s to answer; on a busy machine its imports take longer.
        tested = sys.modules.get(PREFIX + module)
        if hasattr(tested, "FUTURE_TIMEOUT"):
            tested.FUTURE_TIMEOUT = 60
        suite.run(Recorder(results))
        if module == WITH_CALLBACKS:
            # A callback that continues in Python when the interpreter is gone ends the process.
            sys.modules["numba.cuda"].synchronize()
        # Not there in a run without our manager.
        if plugin := sys.modules.get("devexchange.numba"):
            allocated = plugin._manager().statistics().total_allocations
            results.write(json.dumps(["", "allocated", allocated]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
