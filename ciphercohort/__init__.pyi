from sims.api import plan as plan
from sims.api import simulate as simulate
from sims.estimator import FederatedLogisticRegression as FederatedLogisticRegression
from sims.predict import load_model as load_model
from sims.regression import FederatedRegression as FederatedRegression

__all__ = [
    "FederatedLogisticRegression",
    "FederatedRegression",
    "__version__",
    "load_model",
    "plan",
    "simulate",
]
__version__: str
