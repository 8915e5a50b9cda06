// Steps that have no answer yet: what each waits for, and how far its audit may be.

const STAGES = { STAGE_ADMITTED: "admitted", STAGE_WAITING_FOR_REFERENCE: "waits for its reference", STAGE_QUEUED: "waits for a worker",
  STAGE_AUDITING: "is audited", STAGE_STORING: "is stored" };

// An audit takes about as long as the last one of its run and rank took; without one, nobody knows.
function auditProgress(audit, rows, elapsed) {
  const last = rows.filter((row) => row.run === audit.run && row.rank === number(audit.rank) && row.audit_seconds > 0).pop();
  if (audit.stage !== "STAGE_AUDITING" || !last) return "";
  const share = Math.min(elapsed / last.audit_seconds, 0.99);
  return [" ", h("progress", { max: "1", value: String(share), "aria-label": `${percent(share)} of the time that the last step took` }),
    ` the last one took ${seconds(last.audit_seconds)}`];
}

function auditsView(job, rows, made) {
  const audits = job.audits || [];
  if (!audits.length) return "";
  const lines = audits.map((audit) => {
    const elapsed = Math.max((Date.parse(made) - Date.parse(audit.since)) / 1000, 0);
    return h("li", {}, `step ${audit.step || 0} of `, name(audit.run), number(audit.rank) ? `, rank ${audit.rank}` : "",
      ` ${STAGES[audit.stage] || "is under way"} for ${seconds(elapsed)}`, auditProgress(audit, rows, elapsed));
  });
  return h("section", { class: "audits" }, h("h2", {}, "Under way"), h("ul", {}, lines));
}
