from sims.api import plan as plan
from sims.api import simulate as simulate
from sims.deploy_coordinator import Coordinator as Coordinator
from sims.deploy_party import Party as Party
from sims.estimators import FederatedLogisticRegression as FederatedLogisticRegression
from sims.estimators import FederatedRegression as FederatedRegression
from sims.evaluation import evaluate as evaluate
from sims.predict import load_model as load_model

__version__: str
