"""The base of every recipe model."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are refused, types are not converted, nothing can be changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
