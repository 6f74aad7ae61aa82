"""The base of every recipe model, and the number types they share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1, le=10**12)]
Whole = Annotated[int, Field(ge=0, le=10**12)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Frozen(BaseModel):
    """Unknown keys are refused, types are not converted, nothing can be changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
