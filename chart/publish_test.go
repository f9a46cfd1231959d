package chart_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestPublication(t *testing.T) {
	archive := testenv.ChartArchive(t, map[string]string{
		"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.2.0+3\ndescription: An app.\n", "app/values.yaml": "a: 1\n",
	})
	p, err := chart.Publication(bytes.NewReader(archive), artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"app","version":"1.2.0+3","description":"An app.","apiVersion":"v2"}`; string(p.Config) != want {
		t.Errorf("config %s, want %s", p.Config, want)
	}
	if p.ConfigType != "application/vnd.cncf.helm.config.v1+json" || p.LayerType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Errorf("config %s, layer %s", p.ConfigType, p.LayerType)
	}
	if strings.Join(p.Tags, " ") != "1.2.0_3" {
		t.Errorf("tags %q", p.Tags)
	}
	told := map[string]string{
		"org.opencontainers.image.title": "app", "org.opencontainers.image.version": "1.2.0+3", "org.opencontainers.image.description": "An app.",
	}
	if !maps.Equal(p.Annotations, told) {
		t.Errorf("annotations %v", p.Annotations)
	}
	if _, err := chart.Publication(strings.NewReader("no chart"), artifact.Limits{}); err == nil {
		t.Error("what is no chart is published")
	}
}
