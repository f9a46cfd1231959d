package traffic_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

func TestMatch(t *testing.T) {
	exact := func(s string) rollout.StringMatch { return rollout.StringMatch{Exact: s} }
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Match: []rollout.Match{
		{Headers: map[string]rollout.StringMatch{"x-canary": exact("yes"), "x-user": {Prefix: "qa-"}}},
		{Headers: map[string]rollout.StringMatch{"cookie": {Regex: `^(.*; ?)?canary=always(;.*)?$`}}},
		{Headers: map[string]rollout.StringMatch{"user-agent": {Suffix: "/Firefox"}}},
		{Headers: map[string]rollout.StringMatch{"X-Team": {Regex: "a|b|bcd"}}},
		{Headers: map[string]rollout.StringMatch{"X-Quoted": {Regex: `\Qa.b`}}},
	}}
	url := front(t, p).URL
	tests := []struct{ header, want string }{
		{"", "primary"},
		{"X-Canary: yes", "primary"},
		{"X-Canary: yes|X-User: qa-1", "canary"},
		{"x-canary: yes|x-user: dev", "primary"},
		{"X-Canary: Yes|X-User: qa-1", "primary"},
		{"X-Canary: yes|X-Canary: yes|X-User: qa-1", "primary"}, // it is "yes,yes"
		{"Cookie: a=b; canary=always", "canary"},
		{"Cookie: a=b|Cookie: canary=always", "canary"},
		{"Cookie: notcanary=always", "primary"},
		{"User-Agent: x/Firefox", "canary"},
		{"User-Agent: x/Firefox/2", "primary"},
		{"X-Team: b", "canary"},
		{"X-Team: bcd", "canary"}, // also where a shorter alternative comes first
		{"X-Quoted: a.b", "canary"},
		{"X-Quoted: axb", "primary"},
		{"X-Team: bad", "primary"}, // a regular expression is for all of the value
		{"X-Team: " + strings.Repeat("a", 100<<10), "primary"},
	}
	for _, test := range tests {
		var header []string
		for line := range strings.SplitSeq(test.header, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				header = append(header, name, value)
			}
		}
		if got := ask(t, url, header...); got != test.want {
			t.Errorf("%.40q: %s", test.header, got)
		}
	}
	set(t, p, rollout.Routes{Primary: 50, Canary: 50})
	canary := 0
	for range 100 {
		ask(t, url) // does not count
		if ask(t, url, "X-Team", "a") == "canary" {
			canary++
		}
	}
	if canary != 50 {
		t.Errorf("the canary got %d of 100 that match", canary)
	}
}
