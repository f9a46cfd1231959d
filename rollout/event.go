package rollout

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
)

// An EventCode identifies what happened, for use by programs.
type EventCode string

// A Severity is the severity of an alert.
type Severity string

// The severities, in rising order.
const (
	Info  Severity = "info"
	Warn  Severity = "warn"
	Error Severity = "error"
)

// An Event is one action of an analysis.
type Event struct {
	Code    EventCode `json:"code"`
	Warning bool      `json:"warning,omitempty"`
	Message string    `json:"message"` // for people; it names the canary
	Time    time.Time `json:"time"`

	Name      string `json:"name"` // of the canary
	Namespace string `json:"namespace"`
	Phase     Phase  `json:"phase"` // after the event
	Checksum  string `json:"checksum"`
	Sequence  int64  `json:"sequence"` // increases with each event of the canary; an event that is sent again has the same

	Weight       int    `json:"weight"`
	MaxWeight    int    `json:"maxWeight"`
	Iteration    int    `json:"iteration"`
	FailedChecks int    `json:"failedChecks"`
	Hook         string `json:"hook,omitempty"`   // name of the webhook or the metric that the event is about
	Reason       string `json:"reason,omitempty"` // the answer of the webhook or the result of the metric, bounded

	// Alert is the severity of the alert that users get, "" for events without an
	// alert, such as those of gates with muteAlert.
	Alert Severity `json:"alert,omitempty"`
}

// The events of an analysis.
const (
	EventInitialized      EventCode = "init-done"
	EventSuspended        EventCode = "suspended"
	EventNotReady         EventCode = "not-ready" // the primary or the canary; Reason says why
	EventPrimaryStuck     EventCode = "primary-stuck"
	EventCanaryStuck      EventCode = "canary-stuck"
	EventTargetError      EventCode = "target-error"  // an operation of the target failed; it is retried
	EventTrafficError     EventCode = "traffic-error" // reading or setting the routes failed; it is retried
	EventTrafficFail      EventCode = "traffic-fail"  // the same, and it counts as a failed check
	EventRevisionNew      EventCode = "revision-new"
	EventRevisionRestart  EventCode = "revision-restart"
	EventRevisionReverted EventCode = "revision-reverted"

	EventRolloutWaits   EventCode = "cr-wait"
	EventRolloutPass    EventCode = "cr-pass"
	EventTrafficWaits   EventCode = "ti-wait"
	EventTrafficPass    EventCode = "ti-pass"
	EventPromotionWaits EventCode = "cp-wait"
	EventPromotionPass  EventCode = "cp-pass"
	EventGateExpired    EventCode = "gate-expired"

	EventAnalysisStart      EventCode = "analysis-start"
	EventPreRolloutPass     EventCode = "pr-pass"
	EventPreRolloutFail     EventCode = "pr-fail"
	EventRolloutFail        EventCode = "ro-fail"
	EventMetricFail         EventCode = "metric-fail"
	EventMetricInconclusive EventCode = "metric-inconclusive"

	EventMirrored          EventCode = "mirrored" // the canary gets copies of requests, before its first step
	EventWeightAdvanced    EventCode = "weight-advanced"
	EventIterationAdvanced EventCode = "iteration-advanced"
	EventPromoteCopy       EventCode = "promote-copy"
	EventRouteCanary       EventCode = "route-canary"
	EventRoutePrimary      EventCode = "route-primary"
	EventPrimaryAdvanced   EventCode = "primary-weight-advanced"

	EventAborted           EventCode = "aborted"         // a user requested a rollback
	EventPromotionAsked    EventCode = "promotion-asked" // a user requested the promotion
	EventRollbackFired     EventCode = "rb-fired"
	EventRollbackError     EventCode = "rb-error" // the webhook did not answer
	EventRollbackThreshold EventCode = "rollback-threshold"
	EventPromotionFailed   EventCode = "promotion-failed"
	EventRolledBack        EventCode = "rolled-back"
	EventPromoted          EventCode = "promoted"
	EventSkippedPromoted   EventCode = "skipped-promoted"
	EventPostRolloutPass   EventCode = "po-pass"
	EventPostRolloutFail   EventCode = "po-fail"
)

// An eventText holds the severity and the message of an event.
type eventText struct {
	warning bool
	alert   Severity // "" for events without an alert
	text    string   // follows the name of the canary; {…} are replaced
}

// eventTexts holds the text of each event. Receivers written for the reference
// implementation look for "canary weight N", "canary iteration I/N" and "primary
// weight N" at the end of a message.
var eventTexts = map[EventCode]eventText{
	EventInitialized:      {alert: Info, text: "initialized, the primary is ready"},
	EventSuspended:        {text: "suspended, nothing is done"},
	EventNotReady:         {warning: true, text: "not ready: {reason}"},
	EventPrimaryStuck:     {warning: true, alert: Error, text: "the primary does not become ready: {reason}"},
	EventCanaryStuck:      {warning: true, alert: Error, text: "the canary does not become ready: {reason}"},
	EventTargetError:      {warning: true, text: "{reason}"},
	EventTrafficError:     {warning: true, text: "{reason}"},
	EventTrafficFail:      {warning: true, text: "the routes cannot be set, failed checks {failed}/{threshold}: {reason}"},
	EventRevisionNew:      {alert: Info, text: "a new revision is rolled out"},
	EventRevisionRestart:  {alert: Info, text: "another revision came, the rollout starts again"},
	EventRevisionReverted: {warning: true, alert: Warn, text: "the revision of the primary came back, the rollout ends"},

	EventRolloutWaits:   {warning: true, alert: Warn, text: "waits for the approval of the rollout by {hook}: {reason}"},
	EventRolloutPass:    {text: "the rollout is approved by {hook}"},
	EventTrafficWaits:   {warning: true, alert: Warn, text: "waits for the approval of more traffic by {hook}: {reason}"},
	EventTrafficPass:    {text: "more traffic is approved by {hook}"},
	EventPromotionWaits: {warning: true, alert: Warn, text: "waits for the approval of the promotion by {hook}: {reason}"},
	EventPromotionPass:  {text: "the promotion is approved by {hook}"},
	EventGateExpired:    {warning: true, alert: Error, text: "{hook} was closed for longer than its deadline: {reason}"},

	EventAnalysisStart:      {text: "the analysis starts"},
	EventPreRolloutPass:     {text: "pre-rollout webhook {hook} passed"},
	EventPreRolloutFail:     {warning: true, text: "pre-rollout webhook {hook} failed, failed checks {failed}/{threshold}: {reason}"},
	EventRolloutFail:        {warning: true, text: "rollout webhook {hook} failed, failed checks {failed}/{threshold}: {reason}"},
	EventMetricFail:         {warning: true, text: "metric check {hook} failed, failed checks {failed}/{threshold}: {reason}"},
	EventMetricInconclusive: {text: "metric check {hook} decides nothing: {reason}"},

	EventMirrored:          {text: "the traffic is mirrored to the canary, canary weight {weight}"},
	EventWeightAdvanced:    {text: "traffic goes to the canary, canary weight {weight}"},
	EventIterationAdvanced: {text: "the analysis goes on, canary iteration {iteration}/{iterations}"},
	EventPromoteCopy:       {text: "the revision is copied to the primary"},
	EventRouteCanary:       {text: "all traffic goes to the canary before its promotion"},
	EventRoutePrimary:      {text: "all traffic goes to the primary"},
	EventPrimaryAdvanced:   {text: "traffic goes to the promoted primary, primary weight {primary}"},

	EventAborted:           {warning: true, alert: Warn, text: "aborted, the rollout ends: {reason}"},
	EventPromotionAsked:    {warning: true, alert: Warn, text: "the promotion is asked for, what is left of the analysis is skipped: {reason}"},
	EventRollbackFired:     {warning: true, alert: Warn, text: "rollback webhook {hook} asks for a rollback: {reason}"},
	EventRollbackError:     {warning: true, text: "rollback webhook {hook} did not answer: {reason}"},
	EventRollbackThreshold: {warning: true, alert: Error, text: "rollback, failed checks {failed} reached the threshold {threshold}"},
	EventPromotionFailed:   {warning: true, alert: Error, text: "the promotion failed, {weight}% of the traffic goes to the canary: {reason}"},
	EventRolledBack:        {warning: true, text: "rolled back, all traffic goes to the primary"},
	EventPromoted:          {alert: Info, text: "promoted, the canary is scaled down"},
	EventSkippedPromoted:   {alert: Info, text: "promoted without analysis, the canary is scaled down"},
	EventPostRolloutPass:   {text: "post-rollout webhook {hook} passed"},
	EventPostRolloutFail:   {warning: true, text: "post-rollout webhook {hook} failed: {reason}"},
}

// An eventDetail holds the details of one event.
type eventDetail struct {
	name   string // of a webhook or a metric
	reason string
	muted  bool // no alert
}

// emit sends an event with the current phase to the sink, and returns its message.
// It increments the sequence number even without a sink.
func (t *tick) emit(code EventCode, a eventDetail) string {
	t.s.Sequence++
	how, c := eventTexts[code], t.Canary
	e := Event{
		Code: code, Warning: how.warning, Time: t.now,
		Name: c.Metadata.Name, Namespace: c.Namespace(), Phase: t.s.Phase,
		Checksum: t.checksum(), Sequence: t.s.Sequence,
		Weight: t.s.CanaryWeight, MaxWeight: c.MaxWeight(), Iteration: t.s.Iterations, FailedChecks: t.s.FailedChecks,
		Hook: excerpt(a.name), Reason: excerpt(a.reason), Alert: how.alert,
	}
	if a.muted {
		e.Alert = ""
	}
	number := strconv.Itoa
	e.Message = excerpt(c.Metadata.Name+"."+c.Namespace()) + ": " + strings.NewReplacer(
		"{hook}", e.Hook, "{reason}", cmp.Or(e.Reason, "no reason given"),
		"{weight}", number(e.Weight), "{primary}", number(100-e.Weight),
		"{iteration}", number(e.Iteration), "{iterations}", number(c.Spec.Analysis.Iterations),
		"{failed}", number(e.FailedChecks), "{threshold}", number(c.Threshold()),
	).Replace(how.text)
	if t.Sink != nil {
		t.Sink.Emit(t.ctx, e)
	}
	return e.Message
}

// checksum returns the checksum of the revision that the tick is about.
func (t *tick) checksum() string { return Checksum(cmp.Or(t.revision, t.s.AppliedSpec)) }

// maxReason is the maximum length of a remote text in a status or an event, in bytes.
const maxReason = 1 << 10

// excerpt returns the beginning of a text on one line, without credentials.
func excerpt(text string) string { return redact.Excerpt(text, maxReason) }

// answerText returns the answer of a webhook as text, or why there is none.
func answerText(answer Answer, err error) string {
	person := formatReason(excerpt(answer.Actor), excerpt(answer.Reason))
	if err == nil {
		return excerpt(cmp.Or(person, string(answer.Body)))
	}
	text := err.Error()
	if status, is := errors.AsType[*StatusError](err); is && person+string(status.Body) != "" {
		text = "status " + strconv.Itoa(status.Code) + ": " + cmp.Or(person, string(status.Body))
	}
	return excerpt(text)
}
