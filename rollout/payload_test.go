package rollout_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

// The sums were made by the reference.
func TestChecksum(t *testing.T) {
	none := map[string]string(nil)
	tests := map[string]struct {
		spec    string
		configs *map[string]string
		want    string
	}{
		"no configs":          {"abc", nil, "5594979469"},
		"two configs":         {"abc", &map[string]string{"b-config": "2", "a-config": "1"}, "6f8f9c6b58"},
		"nothing":             {"", nil, "758df7c9fc"},
		"empty map":           {"abc", &map[string]string{}, "d94b4687d"},
		"nil map":             {"abc", &none, "5594979469"},
		"keys sorted by byte": {"x", &map[string]string{"b": "2", "a": "1", "B": "3", "": "4"}, "5c4c59bffc"},
		"no escapes": {"69d8f87c9\"\t%d\n\xff",
			&map[string]string{"configmap/a \"q\"": "tab\tnl\n\\ back` é \x00 \xff \u2028 😀 <&>%s"}, "5899f659b5"},
		"long":        {strings.Repeat("spec", 1000), nil, "f6bc6c5c"},
		"prefixes":    {"s", &map[string]string{"ä": "1", "z": "2", "a\x00": "3", "a": "4"}, "78c4645b7d"},
		"empty value": {"k: v\r\nx", &map[string]string{"one": ""}, "589b95dfc6"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rollout.Checksum(test.spec, test.configs); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
