from parties.flower_site import client_app as client_app
from sims.api import plan as plan
from sims.api import simulate as simulate
from sims.deploy_coordinator import Coordinator as Coordinator
from sims.deploy_party import Party as Party
from sims.evaluation import evaluate as evaluate
from sims.flower_job import server_app as server_app
from sims.logistic_estimator import FederatedLogisticRegression as FederatedLogisticRegression
from sims.predict import load_model as load_model
from sims.regression_estimator import FederatedRegression as FederatedRegression

__version__: str
