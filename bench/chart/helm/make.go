package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/repo"
)

const (
	charts   = 120
	versions = 160
)

// fixedBytes is the approximate number of bytes of an entry that do not depend on the
// size of the index.
var fixedBytes = map[string]int{".yaml": 890, ".json": 1180}

// An indexGenerator generates an index. It is deterministic.
type indexGenerator struct {
	rand  *rand.Rand
	extra int // bytes of text in an entry to reach the size
}

func generateIndex(size int, format string) *repo.IndexFile {
	m := &indexGenerator{rand: rand.New(rand.NewPCG(1, 2)), extra: size/(charts*versions) - fixedBytes[format]}
	index := repo.NewIndexFile()
	index.Generated = time.Unix(1.7e9, 0).UTC()
	for c := range charts {
		name := fmt.Sprintf("chart-%03d", c)
		for v := range versions {
			index.Entries[name] = append(index.Entries[name], m.entry(name, versions-v))
		}
	}
	return index
}

func (m *indexGenerator) entry(name string, n int) *repo.ChartVersion {
	version := fmt.Sprintf("%d.%d.%d", n/50, n/10%5, n%10)
	return &repo.ChartVersion{
		Metadata: &chart.Metadata{
			APIVersion: "v2", Name: name, Version: version, AppVersion: fmt.Sprintf("v%d.%d", n/7, n%7), KubeVersion: ">=1.25.0-0", Type: "application",
			Description: m.text(90), Home: "https://example.org/" + name, Icon: "https://example.org/icons/" + name + ".svg",
			Keywords: strings.Fields(m.text(20)), Sources: []string{"https://git.example.org/charts/" + name},
			Maintainers: []*chart.Maintainer{{Name: "First Maintainer", Email: "first@example.org"}},
			Annotations: map[string]string{"category": "Database", "artifacthub.io/license": "Apache-2.0", "artifacthub.io/changes": m.changes(m.extra)},
		},
		Created: time.Unix(1.7e9+int64(n)*3600, int64(n)*1234567).UTC(),
		Digest:  fmt.Sprintf("%016x%016x%016x%016x", m.rand.Uint64(), m.rand.Uint64(), m.rand.Uint64(), m.rand.Uint64()),
		URLs:    []string{fmt.Sprintf("https://charts.example.org/%s-%s.tgz", name, version)},
	}
}

// changes returns a list of changes in YAML, the format of that annotation.
func (m *indexGenerator) changes(size int) string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "- kind: changed\n  description: \"%s\"\n", m.text(70))
	}
	return b.String()
}

var words = strings.Fields("a the chart of for and with which is in Kubernetes cluster database operator deploys highly available scalable secure storage " +
	"support values image upgrade container resources replicas it's ingress \"quoted\" metrics: http://localhost:8080 (optional) readiness")

// text returns words with about size bytes.
func (m *indexGenerator) text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(words[m.rand.IntN(len(words))])
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}
