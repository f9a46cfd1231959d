package rollout_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

func settings(a rollout.Settings) *rollout.Canary {
	return &rollout.Canary{Spec: rollout.CanarySpec{Analysis: a}}
}

// TestWeights follows NextWeight from a weight to the last one.
func TestWeights(t *testing.T) {
	tests := []struct {
		name string
		from int
		rollout.Settings
		want []int
	}{
		{"step", 0, rollout.Settings{StepWeight: 25}, []int{25, 50, 75, 100}},
		{"the maximum is a cap", 0, rollout.Settings{StepWeight: 20, MaxWeight: 50}, []int{20, 40, 50}},
		{"step above the maximum", 0, rollout.Settings{StepWeight: 80, MaxWeight: 50}, []int{50}},
		{"step from a weight of somebody else", 3, rollout.Settings{StepWeight: 20, MaxWeight: 50}, []int{23, 43, 50}},
		{"step at the maximum", 50, rollout.Settings{StepWeight: 20, MaxWeight: 50}, nil},
		{"step above it", 60, rollout.Settings{StepWeight: 20, MaxWeight: 50}, nil},
		{"huge step", 10, rollout.Settings{StepWeight: math.MaxInt}, []int{100}},
		{"maximum above 100", 0, rollout.Settings{StepWeight: 60, MaxWeight: 500}, []int{60, 100}},
		{"steps", 0, rollout.Settings{StepWeights: []int{1, 2, 10, 80}}, []int{1, 2, 10, 80}},
		{"a weight that is none of the steps", 5, rollout.Settings{StepWeights: []int{1, 2, 10, 80}}, []int{10, 80}},
		{"steps above the maximum", 0, rollout.Settings{StepWeights: []int{10, 40, 80}, MaxWeight: 50}, []int{10, 40, 50}},
		{"maximum above the steps", 0, rollout.Settings{StepWeights: []int{10, 40}, MaxWeight: 50}, []int{10, 40}},
		{"steps above 100", 0, rollout.Settings{StepWeights: []int{10, 140}}, []int{10, 100}},
		{"steps that fall", 0, rollout.Settings{StepWeights: []int{30, 10, 50}}, []int{10, 30, 50}},
		{"steps that end low", 0, rollout.Settings{StepWeights: []int{30, 50, 10}}, []int{10}},
		{"negative steps", 0, rollout.Settings{StepWeights: []int{-5, -1}}, nil},
		{"step wins over steps", 0, rollout.Settings{StepWeight: 50, StepWeights: []int{10, 20}}, []int{50, 100}},
		{"neither", 0, rollout.Settings{}, nil},
		{"iterations", 0, rollout.Settings{StepWeight: 50, Iterations: 1}, nil},
	}
	for _, test := range tests {
		var got []int
		c := settings(test.Settings)
		for w := test.from; c.NextWeight(w) != w && len(got) < 200; {
			w = c.NextWeight(w)
			got = append(got, w)
		}
		testenv.Equal(t, got, test.want, test.name)
		if n := len(test.want); n > 0 && c.MaxWeight() != test.want[n-1] {
			t.Errorf("%s: the maximum is %d", test.name, c.MaxWeight())
		}
	}
}

func TestStrategy(t *testing.T) {
	match := []rollout.Match{{}}
	for _, test := range []struct {
		rollout.Settings
		want rollout.Strategy
	}{
		{rollout.Settings{StepWeight: 1}, rollout.Weighted},
		{rollout.Settings{StepWeight: 1, Match: match}, rollout.Weighted},
		{rollout.Settings{Iterations: 1, Match: match}, rollout.ABTest},
		{rollout.Settings{Iterations: 1}, rollout.BlueGreen},
	} {
		testenv.Equal(t, settings(test.Settings).Strategy(), test.want, "%+v", test.Settings)
	}
}

func TestDefaults(t *testing.T) {
	c := settings(rollout.Settings{})
	c.Metadata.Name = "a"
	if c.Interval() != time.Minute || c.Threshold() != 1 || c.MaxWeight() != 100 || c.ProgressDeadline() != 10*time.Minute || c.String() != "Canary/default/a" {
		t.Errorf("%v %v %v %v %v", c.Interval(), c.Threshold(), c.MaxWeight(), c.ProgressDeadline(), c)
	}
	c = settings(rollout.Settings{Interval: rollout.Duration(time.Second), Threshold: -1})
	c.Metadata.Namespace = "b"
	c.Spec.ProgressDeadlineSeconds = math.MaxInt
	if c.Interval() != 10*time.Second || c.Threshold() != 1 || c.Namespace() != "b" || c.ProgressDeadline() <= 0 {
		t.Errorf("%v %v %v %v", c.Interval(), c.Threshold(), c.Namespace(), c.ProgressDeadline())
	}
}

func TestDuration(t *testing.T) {
	var d rollout.Duration
	if err := json.Unmarshal([]byte(`"1m30s"`), &d); err != nil || d != rollout.Duration(90*time.Second) {
		t.Errorf("%v, %v", d, err)
	}
	if text, err := json.Marshal(d); err != nil || string(text) != `"1m30s"` {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`"1d"`), &d); err == nil {
		t.Errorf("1d is %v", d)
	}
}
