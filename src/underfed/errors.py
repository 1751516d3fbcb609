"""The errors a user can meet, each with its exit code; the command line turns them into one line on stderr."""

OK = 0
FINDINGS = 1
USAGE = 2
UNMEASURED = 3


class UnderfedError(Exception):
    """Base of all errors that are shown as one line; the text says what is wrong and what to do."""

    exit_code = USAGE


class UsageError(UnderfedError):
    """The command line or an input file cannot be used."""

    exit_code = USAGE


class MeasurementError(UnderfedError):
    """The input was fine, but nothing could be measured."""

    exit_code = UNMEASURED
