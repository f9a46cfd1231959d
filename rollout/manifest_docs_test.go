package rollout

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestManifestDocs checks that docs/rollout.md speaks of every field that is
// read.
func TestManifestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Manifest\n")
	section, _, _ = strings.Cut(section, "\n## ")
	parts := make(map[string]string) // by heading
	for part := range strings.SplitSeq(section, "\n### ") {
		heading, body, _ := strings.Cut(part, "\n")
		parts[heading] = body
	}
	for heading, typ := range map[string]reflect.Type{
		"spec": reflect.TypeFor[CanarySpec](), "spec.analysis": reflect.TypeFor[Settings](), "match": reflect.TypeFor[Match](),
		"metrics": reflect.TypeFor[Metric](), "webhooks": reflect.TypeFor[Hook](), "alerts": reflect.TypeFor[Alert](),
	} {
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(parts[heading], "`"+name+"`") {
				t.Errorf("%s: no word of %s", heading, name)
			}
		}
	}
	if !strings.Contains(parts["spec.analysis"], "`sessionAffinity`") {
		t.Error("no word of sessionAffinity")
	}
	for _, word := range []string{NoValuesFail, NoValuesPass, NoValuesInconclusive, string(Info), string(Warn), string(Error)} {
		if !strings.Contains(section, "`"+word+"`") {
			t.Errorf("no word of %s", word)
		}
	}
}
