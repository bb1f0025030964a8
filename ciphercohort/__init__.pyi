from ciphercohort.deploy.coordinator import Coordinator as Coordinator
from ciphercohort.deploy.flower_job import server_app as server_app
from ciphercohort.deploy.party import Party as Party
from ciphercohort.estimators.logistic import (
    FederatedLogisticRegression as FederatedLogisticRegression,
)
from ciphercohort.estimators.regression import FederatedRegression as FederatedRegression
from ciphercohort.results.predict import load_model as load_model
from parties.flower_site import client_app as client_app
from sims.api import plan as plan
from sims.api import simulate as simulate
from sims.evaluation import evaluate as evaluate

__version__: str
