"""How a module's state leaves it and comes back: `state_dict`, `load_state_dict` and their hooks.

`Stateful` is the half of `Module` that knows about state dictionaries; registration, traversal and calling are in
`module.py`. Nothing here reads or writes files.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rustgrad._core import Tensor
from rustgrad.autograd.grad_mode import no_grad
from rustgrad.nn.parameter import Parameter
from rustgrad.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from rustgrad.nn.modules.module import Module

__all__ = ["IncompatibleKeys", "Stateful"]

_EXTRA_STATE = "_extra_state"


class IncompatibleKeys(NamedTuple):
    """What `load_state_dict` could not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _Hook:
    """A state-dict hook that follows other rules than those that private methods register: it is told the module, or
    must not return anything.

    It does not hold the module: a cycle would keep that alive until the next garbage collection.
    """

    def __init__(self, hook: Callable[..., Any]) -> None:
        self.hook = hook

    def __call__(self, *args: Any) -> Any:
        return self.hook(*args)


class Stateful:
    """Saving into and loading from a dictionary of tensors, for a tree of modules."""

    _version: int = 1

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    _state_dict_hooks: OrderedDict[int, Callable[..., Any]]
    _state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """What to keep in the state dict beside parameters and buffers; override together with `set_extra_state`."""
        raise RuntimeError(f"{type(self).__name__} keeps no extra state: override get_extra_state() to give some.")

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError(f"{type(self).__name__} takes no extra state: override set_extra_state() to use it.")

    def _own_state(self) -> dict[str, Tensor]:
        """The parameters and persistent buffers of this module alone that are not `None`."""
        own: dict[str, Tensor] = {name: param for name, param in self._parameters.items() if param is not None}
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                own[name] = buffer
        return own

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Put the state of this module, without its children, into `destination`."""
        for name, tensor in self._own_state().items():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers of the module and its descendants, under their dotted names.

        Args:
            destination: a dictionary to fill and return. Default: a new `OrderedDict`.
            prefix: what to put before every name.
            keep_vars: give the parameters themselves; by default detached tensors over their memory.

        Returns:
            The dictionary; a fresh one has an attribute `_metadata` with the version of each module.
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            positional = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = positional.get("destination", destination)
            prefix = positional.get("prefix", prefix)
            keep_vars = positional.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # type: ignore[attr-defined]
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            result = hook(self, destination, prefix, local_metadata)
            if result is not None:
                if isinstance(hook, _Hook):
                    raise RuntimeError("state_dict post-hook must return None")
                destination = result
        return destination

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As `register_state_dict_post_hook`, and the hook may return another dictionary.

        Raises:
            RuntimeError: the same hook was given to `register_state_dict_post_hook`.
        """
        if any(isinstance(known, _Hook) and known.hook is hook for known in self._state_dict_hooks.values()):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously registered via "
                "register_state_dict_post_hook"
            )
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = hook
        return handle

    def register_state_dict_post_hook(
        self, hook: Callable[[Module, dict[str, Any], str, Any], None]
    ) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after this module's state was put in."""
        handle = RemovableHandle(self._state_dict_hooks)
        self._state_dict_hooks[handle.id] = _Hook(hook)
        return handle

    def register_state_dict_pre_hook(self, hook: Callable[[Module, str, bool], None]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before this module's state is put in."""
        handle = RemovableHandle(self._state_dict_pre_hooks)
        self._state_dict_pre_hooks[handle.id] = hook
        return handle

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        handle = RemovableHandle(self._load_state_dict_pre_hooks)
        self._load_state_dict_pre_hooks[handle.id] = _Hook(hook) if with_module else hook
        return handle

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before this module loads its part of a state dict.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[[Module, IncompatibleKeys], None]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may edit the two lists in place."""
        handle = RemovableHandle(self._load_state_dict_post_hooks)
        self._load_state_dict_post_hooks[handle.id] = hook
        return handle

    def _load_tensor(self, name: str, target: Tensor, value: Tensor, assign: bool) -> None:
        """Put `value` into the parameter or buffer `name`, which is `target` now: by copying, or as the new object."""
        with no_grad():
            if not assign:
                target.copy_(value)
                return
            if isinstance(target, Parameter):
                if isinstance(value, Parameter):
                    value.requires_grad_(target.requires_grad)
                else:
                    value = Parameter(value, requires_grad=target.requires_grad)
            setattr(self, name, value)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load the entries under `prefix` into this module, without its children; report into the three lists."""
        for hook in list(self._load_state_dict_pre_hooks.values()):
            module = (self,) if isinstance(hook, _Hook) else ()
            hook(*module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = self._own_state()
        assign = bool(local_metadata.get("assign_to_params_buffers", False))
        for name, target in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            value = state_dict[key]
            if not isinstance(value, Tensor):
                error_msgs.append(
                    f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                    f"checkpoint but received {type(value)}"
                )
                continue
            if target.dim() == 0 and tuple(value.shape) == (1,):  # how very old files keep a scalar
                value = value[0]
            if value.shape != target.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
                    f"the shape in current model is {target.shape}."
                )
                continue
            try:
                self._load_tensor(name, target, value, assign)
            except Exception as error:  # reported with all the others
                error_msgs.append(
                    f'While copying the parameter named "{key}", whose dimensions in the model are {target.shape} and '
                    f"whose dimensions in the checkpoint are {value.shape}, an exception occurred : {error.args}."
                )

        extra_key = prefix + _EXTRA_STATE
        if type(self).set_extra_state is not Stateful.set_extra_state:
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)

        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    first, *rest = key[len(prefix) :].split(".", 1)
                    if first not in (self._modules if rest else own):
                        unexpected_keys.append(key)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy the tensors of `state_dict` into the parameters and buffers of the same names.

        Args:
            state_dict: dotted names to tensors of the same shapes as the module's; dtypes are converted.
            strict: raise if names are missing or left over.
            assign: make the given tensors the module's own instead of copying; `requires_grad` stays the module's.

        Returns:
            The names that were missing and those that were left over.

        Raises:
            TypeError: `state_dict` is no mapping.
            RuntimeError: shapes differ, or `strict` and names do; the message lists everything that is wrong.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)

        def load(module: Stateful, part: dict[str, Any], prefix: str) -> None:
            local = {} if metadata is None else dict(metadata.get(prefix[:-1], {}))
            if assign:
                local["assign_to_params_buffers"] = True
            module._load_from_state_dict(part, prefix, local, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    below = f"{prefix}{name}."
                    load(child, {key: value for key, value in part.items() if key.startswith(below)}, below)
            keys = IncompatibleKeys(missing, unexpected)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, keys) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                        "values, if incompatible_keys need to be modified, it should be done inplace."
                    )

        whole = OrderedDict(state_dict)
        if metadata is not None:
            whole._metadata = metadata  # type: ignore[attr-defined]
        load(self, whole, "")

        if strict:
            for title, keys in (("Unexpected", unexpected), ("Missing", missing)):
                if keys:
                    quoted = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{title} key(s) in state_dict: {quoted}. ")
        if errors:
            listing = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listing}")
        return IncompatibleKeys(missing, unexpected)
