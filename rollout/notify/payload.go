package notify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

const (
	maxText        = 2000 // characters of a posted text: below the limit of every service
	maxField       = 250  // characters of a name or the value of a field
	zeroWidthSpace = "\u200b"
)

// A message is an alert.
type message struct {
	rollout.Event
	Fields []field `json:"fields,omitempty"`
	Lost   int     `json:"lost,omitempty"` // number of lost events before this one

	service
	spec *ProviderSpec
}

// A field is a detail of a message.
type field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// A service holds the message format of one type of provider.
type service struct {
	payload                   func(*message) any
	escape                    *strings.Replacer // escapes a text so that the service shows it literally
	normalColour, errorColour string            // colours of other alerts, and of errors
}

var (
	// Apart from bold, italics and the like, Slack interprets only text that begins with one of these three.
	entityEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	// A zero-width space breaks mentions, entities and links, for services without escapes in all versions.
	zeroWidthEscaper = strings.NewReplacer("<", "<"+zeroWidthSpace, "@", "@"+zeroWidthSpace, "&", "&"+zeroWidthSpace, "](", "]"+zeroWidthSpace+"(")
	cardEscaper      = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "](", "]"+zeroWidthSpace+"(") // Markdown with HTML
	htmlEscaper      = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")
	noEscaper        = strings.NewReplacer()
)

var services = map[Type]service{
	Slack:   {slack, entityEscaper, "good", "danger"},
	Discord: {slack, zeroWidthEscaper, "good", "danger"},
	Rocket:  {slack, zeroWidthEscaper, "#0076D7", "#FF0000"},
	MSTeams: {teams, cardEscaper, "0076D7", "FF0000"},
	GChat:   {chat, htmlEscaper, "", ""},
	Generic: {generic, noEscaper, "", ""},
}

// workflow is the format for workflows of MS Teams, which replaced the connectors that take message cards.
var workflow = service{adaptive, zeroWidthEscaper, "Good", "Attention"}

// workflowHosts lists the suffixes of the hosts of workflows.
var workflowHosts = []string{".logic.azure.com", ".logic.azure.us", ".logic.azure.cn", ".powerplatform.com", ".powerautomate.com"}

// payload returns the body to post to u for m.
func (p *ProviderSpec) payload(u *url.URL, m message) ([]byte, error) {
	s := services[p.Type]
	if p.Type == MSTeams && slices.ContainsFunc(workflowHosts, func(host string) bool { return strings.HasSuffix(strings.ToLower(u.Hostname()), host) }) {
		s = workflow
	}
	m.spec, m.service = p, s
	m.Fields = slices.Clone(m.Fields)
	for i := range m.Fields {
		m.Fields[i].Value = m.fit(m.Fields[i].Value, maxField)
	}
	return json.Marshal(s.payload(&m))
}

type object map[string]any

func slack(m *message) any {
	fields := []object{}
	for _, f := range m.Fields {
		fields = append(fields, object{"title": f.Name, "value": f.Value, "short": false})
	}
	return object{
		"channel": cmp.Or(m.spec.Channel, "general"), "username": cmp.Or(m.spec.Username, "headgate"), "icon_url": "", "icon_emoji": ":rocket:",
		"attachments": []object{{"color": m.colour(), "author_name": m.subject(), "text": m.text(), "mrkdwn_in": []string{"text"}, "fields": fields}},
	}
}

func teams(m *message) any {
	section := object{"activityTitle": m.text(), "activitySubtitle": m.subject(), "facts": append([]field{}, m.Fields...)}
	return object{
		"@type": "MessageCard", "@context": "http://schema.org/extensions", "themeColor": m.colour(), "summary": m.subject(), "sections": []object{section},
	}
}

func adaptive(m *message) any {
	body := []object{
		{"type": "TextBlock", "text": m.subject(), "weight": "Bolder", "color": m.colour(), "wrap": true},
		{"type": "TextBlock", "text": m.text(), "wrap": true},
	}
	var facts []object
	for _, f := range m.Fields {
		facts = append(facts, object{"title": f.Name, "value": f.Value})
	}
	if facts != nil {
		body = append(body, object{"type": "FactSet", "facts": facts})
	}
	content := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body}
	return object{"type": "message", "attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "content": content}}}
}

func chat(m *message) any {
	paragraph := func(label, value string) object {
		text := object{"text": label + "<font color=#848484><strong>" + value + "</strong></font>"}
		return object{"widgets": []object{{"textParagraph": text}}}
	}
	sections := []object{paragraph("", m.text())}
	for _, f := range m.Fields {
		sections = append(sections, paragraph(f.Name+"<br>", f.Value))
	}
	header := object{"title": cmp.Or(m.spec.Username, "headgate"), "subtitle": m.subject(), "imageUrl": ""}
	return object{"cards": []object{{"header": header, "sections": sections}}}
}

// generic returns the event itself, with its texts redacted and bounded.
func generic(m *message) any {
	m.Message, m.Reason = m.fit(m.Message, maxText), m.fit(m.Reason, maxText)
	for _, name := range []*string{&m.Name, &m.Namespace, &m.Checksum, &m.Hook} {
		*name = m.fit(*name, maxField)
	}
	return m
}

// text returns the text of the message. The number of lost events follows even a text that is cut.
func (m *message) text() string {
	text, lost := m.Message, ""
	if m.Reason != "" && !strings.Contains(text, m.Reason) {
		text += ": " + m.Reason
	}
	if m.Lost == 1 {
		lost = " (1 message before this one was lost)"
	} else if m.Lost > 1 {
		lost = fmt.Sprintf(" (%d messages before this one were lost)", m.Lost)
	}
	return m.fit(text, maxText-len(lost)) + lost
}

// subject returns the name of the canary as the services show it.
func (m *message) subject() string { return m.fit(m.Name+"."+m.Namespace, maxField) }

func (m *message) colour() string {
	if m.Alert == rollout.Error {
		return m.errorColour
	}
	return m.normalColour
}

// fit returns text without credentials, escaped for the service, and cut to at most limit characters.
func (m *message) fit(text string, limit int) string {
	text = redact.String(text)
	shown := m.escape.Replace(text)
	if utf8.RuneCountInString(shown) <= limit {
		return shown
	}
	runes := []rune(text)
	n := sort.Search(min(limit, len(runes)), func(n int) bool { return utf8.RuneCountInString(m.escape.Replace(string(runes[:n+1]))) >= limit })
	return m.escape.Replace(string(runes[:n])) + "…"
}

// fieldsOf returns the settings of a canary that alerts show. Cluster is left out if it is "".
func fieldsOf(canary *rollout.Canary, cluster string) []field {
	var list []field
	if cluster != "" {
		list = append(list, field{"Cluster", cluster})
	}
	target := canary.Spec.TargetRef
	list = append(list,
		field{"Target", fmt.Sprintf("%s/%s.%s", target.Kind, target.Name, canary.Namespace())},
		field{"Failed checks threshold", strconv.Itoa(canary.Threshold())},
		field{"Progress deadline", fmt.Sprintf("%.0fs", canary.ProgressDeadline().Seconds())},
	)
	if routing := routing(canary); routing != "" {
		list = append(list, field{"Traffic routing", routing})
	}
	return list
}

// routing returns how the canary gets its traffic as text, "" if it gets none.
func routing(canary *rollout.Canary) string {
	s := &canary.Spec.Analysis
	switch {
	case canary.Strategy() == rollout.ABTest:
		return "A/B Testing"
	case canary.Strategy() == rollout.BlueGreen:
		return "Blue/Green"
	case s.StepWeight > 0:
		return fmt.Sprintf("Weight step: %d max: %d", s.StepWeight, canary.MaxWeight())
	case len(s.StepWeights) > 0:
		steps := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.StepWeights), "[]"), " ", ",")
		return fmt.Sprintf("Weight steps: %s max: %d", steps, canary.MaxWeight())
	}
	return ""
}
