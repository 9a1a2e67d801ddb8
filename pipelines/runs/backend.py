"""The interface of systems that execute runs."""

from typing import Protocol

from pipelines.runs.run import Run, TrainingJob


class Backend(Protocol):
    """A system that executes runs: this machine, or Vertex AI."""

    def fetch(self, name: str) -> Run:
        """Return a run; raise InputError if there is none of this name."""

    def cancel(self, name: str) -> None:
        """Ask a run to end; raise InputError if it has ended."""

    def read_log(self, run: Run, replica: str | None, count: int) -> list[str]:
        """Return the last log lines of a replica, such as chief-0 or workerpool0-0, or of "all".

        If no replica is given, return those of the replica or task that failed, else of the job
        that trains, without the runtime's own messages.
        """

    def job_lines(self, job: TrainingJob) -> list[str]:
        """Return the lines of `status` about a training job that follow its state."""

    def cost_lines(self, run: Run) -> list[str]:
        """Return the lines of `status` about the cost of a run."""

    def resume_command(self, run: Run) -> str:
        """Return the command line that resumes a run."""
