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

# The module whose methods add callbacks to streams, and do not wait for these.
WITH_CALLBACKS = "cudadrv.test_streams"


class Recorder(unittest.TestResult):
    def __init__(self, results):
        super().__init__()
        self.results = results
        self.seen = set()

    def write(self, test, outcome, text=""):
        # A method with several errors, or with several subtests that fail, counts once.
        if test.id() not in self.seen:
            self.seen.add(test.id())
            self.results.write(json.dumps([test.id().removeprefix(PREFIX), outcome, text]) + "\n")

    def addSuccess(self, test):
        self.write(test, "passed")

    def addError(self, test, error):
        # Methods of numba-cuda may skip with pytest's exception.
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
        # The last reference to a stream can be dropped in its callback, where CUDA allows no calls to the driver. Below
        # this limit, which the tests do not reach, Numba destroys nothing there.
        os.environ["NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT"] = "1000"
    with open(path, "w") as results:
        suite = unittest.defaultTestLoader.loadTestsFromName(PREFIX + module)
        # numba-cuda gives a fresh process 4 s to answer; on a busy machine its imports take longer.
        tested = sys.modules.get(PREFIX + module)
        if hasattr(tested, "FUTURE_TIMEOUT"):
            tested.FUTURE_TIMEOUT = 60
        suite.run(Recorder(results))
        if module == WITH_CALLBACKS:
            # A callback that runs in Python after the end of the interpreter would end the process.
            sys.modules["numba.cuda"].synchronize()
        # A run without our manager does not import the plugin.
        if plugin := sys.modules.get("devexchange.numba"):
            allocated = plugin._manager().statistics().total_allocations
            results.write(json.dumps(["", "allocated", allocated]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
