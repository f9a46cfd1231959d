package notify

import (
	"encoding/json"

	"github.com/headgate-io/headgate/rollout"
)

// A service is how one type of notifier is spoken to.
type service struct {
	encode  func(s *service, p *ProviderSpec, m *Message) any
	show    escape
	calm    string // colour of alerts that are no errors
	alarm   string // colour of errors
	suffix  string // of the path of its address
	token   bool   // a token of the Secret is sent
	address string // where a token is for when no address is given
}

// services are the types of notifiers.
var services = map[Type]*service{
	Slack:   {encode: slack, show: entities, calm: "good", alarm: "danger", token: true, address: "https://slack.com/api/chat.postMessage"},
	Discord: {encode: slack, show: gaps, calm: "good", alarm: "danger", suffix: "slack"},
	Rocket:  {encode: slack, show: gaps, calm: "#0076D7", alarm: "#FF0000"},
	MSTeams: {encode: teams, show: card, calm: "0076D7", alarm: "FF0000"},
	GChat:   {encode: chat, show: markup},
	Generic: {encode: generic, show: plain, token: true},
}

func (s *service) colour(severity rollout.Severity) string {
	if severity == rollout.Error {
		return s.alarm
	}
	return s.calm
}

// body returns what is posted for m.
func (s *service) body(p *ProviderSpec, m *Message) ([]byte, error) {
	return json.Marshal(s.encode(s, p, m))
}

// text returns what m says. What was lost is told behind the text, whatever its length.
func (s *service) text(m *Message) string {
	lost := m.lost()
	return fit(m.text(), MaxText-len(lost), s.show) + lost
}

func (s *service) subject(m *Message) string { return fit(m.subject(), maxField, s.show) }

func (s *service) value(f Field) string { return fit(f.Value, maxField, s.show) }

type slackMessage struct {
	Channel     string            `json:"channel"`
	Username    string            `json:"username"`
	IconURL     string            `json:"icon_url"`
	IconEmoji   string            `json:"icon_emoji"`
	Attachments []slackAttachment `json:"attachments"`
}

type slackAttachment struct {
	Color      string       `json:"color"`
	AuthorName string       `json:"author_name"`
	Text       string       `json:"text"`
	MrkdwnIn   []string     `json:"mrkdwn_in"`
	Fields     []slackField `json:"fields"`
}

type slackField struct {
	Title string `json:"title"`
	Value string `json:"value"`
	Short bool   `json:"short"`
}

func slack(s *service, p *ProviderSpec, m *Message) any {
	fields := make([]slackField, 0, len(m.Fields))
	for _, f := range m.Fields {
		fields = append(fields, slackField{Title: f.Name, Value: s.value(f)})
	}
	return slackMessage{
		Channel:   p.channel(),
		Username:  p.username(),
		IconEmoji: ":rocket:",
		Attachments: []slackAttachment{{
			Color:      s.colour(m.Event.Alert),
			AuthorName: s.subject(m),
			Text:       s.text(m),
			MrkdwnIn:   []string{"text"},
			Fields:     fields,
		}},
	}
}

type teamsCard struct {
	Type       string         `json:"@type"`
	Context    string         `json:"@context"`
	ThemeColor string         `json:"themeColor"`
	Summary    string         `json:"summary"`
	Sections   []teamsSection `json:"sections"`
}

type teamsSection struct {
	Title    string  `json:"activityTitle"`
	Subtitle string  `json:"activitySubtitle"`
	Facts    []Field `json:"facts"`
}

func teams(s *service, _ *ProviderSpec, m *Message) any {
	facts := make([]Field, 0, len(m.Fields))
	for _, f := range m.Fields {
		facts = append(facts, Field{f.Name, s.value(f)})
	}
	return teamsCard{
		Type:       "MessageCard",
		Context:    "http://schema.org/extensions",
		ThemeColor: s.colour(m.Event.Alert),
		Summary:    s.subject(m),
		Sections:   []teamsSection{{Title: s.text(m), Subtitle: s.subject(m), Facts: facts}},
	}
}

type chatMessage struct {
	Cards []chatCard `json:"cards"`
}

type chatCard struct {
	Header   chatHeader    `json:"header"`
	Sections []chatSection `json:"sections"`
}

type chatHeader struct {
	Title    string `json:"title"`
	Subtitle string `json:"subtitle"`
	ImageURL string `json:"imageUrl"`
}

type chatSection struct {
	Widgets []chatWidget `json:"widgets"`
}

type chatWidget struct {
	TextParagraph chatText `json:"textParagraph"`
}

type chatText struct {
	Text string `json:"text"`
}

func chat(s *service, p *ProviderSpec, m *Message) any {
	sections := []chatSection{chatParagraph("", s.text(m))}
	for _, f := range m.Fields {
		sections = append(sections, chatParagraph(f.Name+"<br>", s.value(f)))
	}
	return chatMessage{[]chatCard{{
		Header:   chatHeader{Title: p.username(), Subtitle: s.subject(m)},
		Sections: sections,
	}}}
}

func chatParagraph(label, value string) chatSection {
	return chatSection{[]chatWidget{{chatText{label + "<font color=#848484><strong>" + value + "</strong></font>"}}}}
}

// A genericMessage is the event with what only messages have.
type genericMessage struct {
	rollout.Event
	Fields []Field `json:"fields,omitempty"`
	Lost   int     `json:"lost,omitempty"`
}

func generic(s *service, _ *ProviderSpec, m *Message) any {
	event := m.Event
	event.Message = fit(event.Message, MaxText, plain)
	event.Reason = fit(event.Reason, MaxText, plain)
	for _, name := range []*string{&event.Name, &event.Namespace, &event.Checksum, &event.Hook} {
		*name = fit(*name, maxField, plain)
	}
	var fields []Field
	for _, f := range m.Fields {
		fields = append(fields, Field{f.Name, s.value(f)})
	}
	return genericMessage{event, fields, m.Lost}
}
