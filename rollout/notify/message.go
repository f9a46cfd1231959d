package notify

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// A Message is an alert for people.
type Message struct {
	Event  rollout.Event
	Fields []Field
	Lost   int // events before this one that the receiver was not told
}

// A Field is a detail of a message.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Fields returns the settings of a canary that go with alerts of its
// beginning; cluster is left out when it is "".
func Fields(canary *rollout.Canary, cluster string) []Field {
	var list []Field
	if cluster != "" {
		list = append(list, Field{"Cluster", cluster})
	}
	spec := &canary.Spec
	list = append(list,
		Field{"Target", fmt.Sprintf("%s/%s.%s", spec.TargetRef.Kind, spec.TargetRef.Name, namespace(canary.Metadata.Namespace))},
		Field{"Failed checks threshold", strconv.Itoa(canary.Threshold())},
		Field{"Progress deadline", fmt.Sprintf("%.0fs", canary.ProgressDeadline().Seconds())},
	)
	if routing := routing(canary); routing != "" {
		list = append(list, Field{"Traffic routing", routing})
	}
	return list
}

func namespace(name string) string {
	return cmp.Or(name, rollout.DefaultNamespace)
}

// routing says how the canary gets its traffic, "" when it gets none.
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
		var steps []string
		for _, step := range s.StepWeights {
			steps = append(steps, strconv.Itoa(step))
		}
		return fmt.Sprintf("Weight steps: %s max: %d", strings.Join(steps, ","), canary.MaxWeight())
	}
	return ""
}

// text returns what the message says, as it came.
func (m *Message) text() string {
	text := m.Event.Message
	if reason := m.Event.Reason; reason != "" && !strings.Contains(text, reason) {
		text += ": " + reason
	}
	return text
}

// lost returns the sentence on what was not told, "" for nothing.
func (m *Message) lost() string {
	switch m.Lost {
	case 0:
		return ""
	case 1:
		return " (1 message before this one was lost)"
	}
	return fmt.Sprintf(" (%d messages before this one were lost)", m.Lost)
}

// subject returns the canary's name as the services show it.
func (m *Message) subject() string { return m.Event.Name + "." + m.Event.Namespace }
