"""How long an example of a property takes says how busy the machine is, and nothing of the property."""

from hypothesis import HealthCheck, settings

settings.register_profile("stoker", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("stoker")
