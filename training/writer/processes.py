"""The processes that train one model together, as `torchrun` or `accelerate launch` start them.

Each takes its share of a step's batches, and the results are summed. A single process, the common
case, does not use torch.distributed.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Processes:
    """This process and its number among the processes that train together.

    Attributes:
        rank: Its number. 0 is the main process, the only one that writes files and reports.
        count: The number of processes.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read rank and count from the launcher's variables; without a launcher, one process."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and reports."""
        return self.rank == 0

    def device(self) -> "torch.device":
        """Return the GPU of this process, or the CPU if there is no GPU."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    @contextmanager
    def joined(self, device: "torch.device") -> Iterator[None]:
        """Connect all processes; the methods below work inside."""
        import torch.distributed

        if self.count == 1:
            yield
            return
        # Its functions keep the group that is there when it is imported, as the first step of an
        # optimizer does. Then gloo's threads outlive the group, and at the end they may abort the
        # process: "terminate called without an active exception".
        import torch.distributed.nn.functional

        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()

    def share(self, items: Sequence[_T]) -> Sequence[_T]:
        """Return this process's share: every `count`-th item, starting at its rank."""
        return items[self.rank :: self.count]

    def sum_gradients(self, parameters: "Iterable[Tensor]") -> None:
        """Replace the gradients of every process by their sum over all processes."""
        import torch

        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # the process had no batch in this step
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)

    def total(self, value: float, device: "torch.device") -> float:
        """Return the sum of a value over all processes."""
        import torch

        if self.count == 1:
            return value
        total = torch.tensor(value, device=device, dtype=torch.float64)
        torch.distributed.all_reduce(total)
        return float(total)

    def gather(self, value: _T) -> list[_T]:
        """Return the values of all processes in the order of their ranks."""
        import torch.distributed

        if self.count == 1:
            return [value]
        values: list[_T | None] = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # all are filled now

    def from_main(self, value: _T) -> _T:
        """Return the main process's value in every process."""
        import torch.distributed

        if self.count == 1:
            return value
        values = [value]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]
