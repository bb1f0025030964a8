from sims.api import plan as plan
from sims.api import simulate as simulate
from sims.estimators import FederatedLogisticRegression as FederatedLogisticRegression
from sims.estimators import FederatedRegression as FederatedRegression
from sims.evaluation import evaluate as evaluate
from sims.predict import load_model as load_model

__all__ = [
    "FederatedLogisticRegression",
    "FederatedRegression",
    "__version__",
    "evaluate",
    "load_model",
    "plan",
    "simulate",
]
__version__: str
