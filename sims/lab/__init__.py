"""The laboratory: papers, studies, audits. Nothing else imports it."""
