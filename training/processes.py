"""The processes that train one model together, as `torchrun` or `accelerate launch` start them.

Each takes its share of a step's batches, and what they found is summed. One process alone, which is
the common case, needs no torch.distributed, and pays nothing for it.
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
    """This process among those that train together.

    Attributes:
        rank: Its number; 0 is the main process, which alone writes files and reports.
        count: How many there are.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read who this process is from what its launcher set; one alone without a launcher."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    @property
    def is_main(self) -> bool:
        """Tell whether this process writes files and reports."""
        return self.rank == 0

    def device(self) -> "torch.device":
        """Choose the GPU of this process, or the CPU where there is none."""
        import torch

        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    @contextmanager
    def joined(self, device: "torch.device") -> Iterator[None]:
        """Wait until all processes are there; what is below works inside."""
        import torch.distributed

        if self.count == 1:
            yield
            return
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()

    def share(self, items: Sequence[_T]) -> Sequence[_T]:
        """Take this process's share: every `count`-th item, beginning at its own number."""
        return items[self.rank :: self.count]

    def sum_gradients(self, parameters: "Iterable[Tensor]") -> None:
        """Give every process the sum of all processes' gradients."""
        import torch

        if self.count == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:  # it had no batch of this step
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)

    def total(self, value: float, device: "torch.device") -> float:
        """Add up what each process found."""
        import torch

        if self.count == 1:
            return value
        total = torch.tensor(value, device=device, dtype=torch.float64)
        torch.distributed.all_reduce(total)
        return float(total)

    def gather(self, value: _T) -> list[_T]:
        """Collect each process's value, in the order of their numbers, in all of them."""
        import torch.distributed

        if self.count == 1:
            return [value]
        values: list[_T | None] = [None] * self.count
        torch.distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # all are filled now

    def from_main(self, value: _T) -> _T:
        """Hand the main process's value to all; the others' own is dropped."""
        import torch.distributed

        if self.count == 1:
            return value
        values = [value]
        torch.distributed.broadcast_object_list(values, src=0)
        return values[0]
