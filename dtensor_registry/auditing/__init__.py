"""What a program runs: every DTensor op, who decides it, what it moves, and from which line."""

from dtensor_registry.auditing.program import ProgramAudit, audit_program
from dtensor_registry.auditing.record import Audit, audit
from dtensor_registry.auditing.report import AuditReport
from dtensor_registry.auditing.rows import AuditRow, LineRow

__all__ = ["Audit", "AuditReport", "AuditRow", "LineRow", "ProgramAudit", "audit", "audit_program"]
