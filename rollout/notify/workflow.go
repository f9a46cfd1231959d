package notify

import (
	"net/url"
	"strings"
)

// workflows are the hosts of workflows of MS Teams, which replaced the
// connectors that message cards are for.
var workflows = []string{".logic.azure.com", ".logic.azure.us", ".logic.azure.cn", ".powerplatform.com", ".powerautomate.com"}

// workflow is how they are spoken to.
var workflow = &service{encode: adaptive, show: gaps, calm: "Good", alarm: "Attention"}

// of returns how the service at u is spoken to.
func (t Type) of(u *url.URL) *service {
	if t == MSTeams {
		host := strings.ToLower(u.Hostname())
		for _, suffix := range workflows {
			if strings.HasSuffix(host, suffix) {
				return workflow
			}
		}
	}
	return services[t]
}

type workflowMessage struct {
	Type        string               `json:"type"`
	Attachments []workflowAttachment `json:"attachments"`
}

type workflowAttachment struct {
	ContentType string       `json:"contentType"`
	Content     adaptiveCard `json:"content"`
}

type adaptiveCard struct {
	Schema  string `json:"$schema"`
	Type    string `json:"type"`
	Version string `json:"version"`
	Body    []any  `json:"body"`
}

type textBlock struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Weight string `json:"weight,omitempty"`
	Color  string `json:"color,omitempty"`
	Wrap   bool   `json:"wrap"`
}

type factSet struct {
	Type  string `json:"type"`
	Facts []fact `json:"facts"`
}

type fact struct {
	Title string `json:"title"`
	Value string `json:"value"`
}

func adaptive(s *service, _ *ProviderSpec, m *Message) any {
	body := []any{
		textBlock{Type: "TextBlock", Text: s.subject(m), Weight: "Bolder", Color: s.colour(m.Event.Alert), Wrap: true},
		textBlock{Type: "TextBlock", Text: s.text(m), Wrap: true},
	}
	if len(m.Fields) > 0 {
		set := factSet{Type: "FactSet"}
		for _, f := range m.Fields {
			set.Facts = append(set.Facts, fact{f.Name, s.value(f)})
		}
		body = append(body, set)
	}
	return workflowMessage{Type: "message", Attachments: []workflowAttachment{{
		ContentType: "application/vnd.microsoft.card.adaptive",
		Content:     adaptiveCard{Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4", Body: body},
	}}}
}
