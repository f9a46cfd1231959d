package chart

import (
	"errors"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestNamesThatNobodyIsAskedFor: spec.chart is refused before a registry sees it.
func TestNamesThatNobodyIsAskedFor(t *testing.T) {
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	push(t, registry, "team", "app", "1.0.0")
	env := newSupply(t, repositoryObject("charts", registry.URL("team"), "")).env
	for name, good := range map[string]bool{"app": true, "App": false, "../team/app": false, "a_b": false, "app\x00": false} {
		registry.Reset()
		c := &source.PkgChart{Spec: source.PkgChartSpec{Chart: name, SourceRef: source.LocalChartSourceReference{Kind: "PkgRepository", Name: "charts"}}}
		c.Metadata.Namespace, c.Metadata.Name = "default", "app"
		source.Default(c)
		_, _, err := New(c, env, nil).Resolve(t.Context(), nil)
		if good {
			if err != nil || registry.Count() == 0 {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		var step *source.StepError
		if !errors.As(err, &step) || step.Reason != "InvalidChartReference" || !errors.Is(err, source.ErrInvalid) || registry.Count() != 0 {
			t.Errorf("%q: %v after %d requests", name, err, registry.Count())
		}
	}
}
