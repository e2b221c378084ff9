"""How fast the links of a mesh are: what turns bytes into microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from dtensor_registry.errors import SettingsError

_HOST_BANDWIDTH = 87.7
_HOST_LATENCY = 0.6
_NETWORK_SHARE = 0.22
_NETWORK_LATENCY = 2.7


@dataclass(frozen=True, slots=True)
class Topology:
    """Size, bandwidth and latency of each mesh dim, outermost first.

    Settings may replace bandwidth and latency. That changes which placements are
    chosen, never what an op computes.

    Attributes:
        mesh_shape: ranks on each mesh dim.
        bandwidth: GiB/s (2**30 bytes per second) between neighbours on each mesh dim.
        latency: microseconds for each hop on each mesh dim.

    Raises:
        SettingsError: if the three differ in length or hold a value that prices nothing.

    >>> Topology.assumed((2, 8), devices_per_host=8).latency
    (2.7, 0.6)
    """

    mesh_shape: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = (len(self.mesh_shape), len(self.bandwidth), len(self.latency))
        if len(set(lengths)) != 1:
            raise SettingsError(
                f"a topology of {lengths[0]} mesh dims has {lengths[1]} bandwidths and"
                f" {lengths[2]} latencies; give one of each per mesh dim, outermost first"
            )
        for mesh_dim, (size, bandwidth, latency) in enumerate(
            zip(self.mesh_shape, self.bandwidth, self.latency, strict=True)
        ):
            if size < 1 or not bandwidth > 0 or not latency >= 0:
                raise SettingsError(
                    f"mesh dim {mesh_dim} of a topology has size {size}, bandwidth {bandwidth}"
                    f" GiB/s and latency {latency} us; a size is at least 1, a bandwidth above 0,"
                    " and a latency 0 or more"
                )

    @property
    def links(self) -> tuple[tuple[int, float, float], ...]:
        """List size, bandwidth and latency of each mesh dim together."""
        return tuple(zip(self.mesh_shape, self.bandwidth, self.latency, strict=True))

    @classmethod
    def assumed(cls, mesh_shape: tuple[int, ...], devices_per_host: int) -> Topology:
        """Build the topology that torch assumes where nobody has measured one.

        A mesh dim is inside a host as long as it and all mesh dims inside it fit on one.
        The numbers are those of NVLink and of a network between hosts.

        Source: `MeshTopoInfo.build_from_mesh` in torch.distributed.tensor._collective_utils.
        """
        bandwidth = [_HOST_BANDWIDTH] * len(mesh_shape)
        latency = [_HOST_LATENCY] * len(mesh_shape)
        devices = 1
        for mesh_dim in reversed(range(len(mesh_shape))):
            devices *= mesh_shape[mesh_dim]
            if devices > devices_per_host:
                bandwidth[mesh_dim] = _HOST_BANDWIDTH * _NETWORK_SHARE
                latency[mesh_dim] = _NETWORK_LATENCY
        return cls(tuple(mesh_shape), tuple(bandwidth), tuple(latency))
