package yaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// indexYAML returns an index of chart versions, about as wide as public ones.
func indexYAML(versions int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nentries:\n")
	for n := range versions {
		if n%20 == 0 {
			fmt.Fprintf(&b, "  chart-%d:\n", n/20)
		}
		fmt.Fprintf(&b, `  - annotations:
      category: Database
      images: |
        - name: server
          image: registry.example.com/apps/server:%[1]d.2.3
        - name: sidecar
          image: registry.example.com/apps/sidecar:1.%[1]d.0
    apiVersion: v2
    appVersion: "%[1]d.2.3"
    created: "2026-03-04T05:06:07.%09[1]dZ"
    dependencies:
    - name: common
      repository: oci://registry.example.com/charts
      tags:
      - common
      version: 2.x.x
    description: A server that keeps tables on disk and answers questions about them, with replication
      and automatic backups, for clusters of any size.
    digest: %064[1]x
    home: https://example.com/apps/server
    icon: https://example.com/assets/stacks/server/img/server-stack-220x234.png
    keywords:
    - database
    - replication
    maintainers:
    - name: Example, Inc. All rights reserved.
      url: https://github.com/example/charts
    name: chart-%[2]d
    sources:
    - https://github.com/example/charts/tree/main/server
    urls:
    - https://charts.example.com/files/server-%[1]d.2.3.tgz
    version: %[1]d.2.3
`, n, n/20)
	}
	b.WriteString("generated: \"2026-03-04T05:06:07Z\"\n")
	return []byte(b.String())
}

// indexJSON returns the same as one line of JSON.
func indexJSON(versions int) []byte {
	type entry map[string]any
	entries := map[string][]entry{}
	for n := range versions {
		name := fmt.Sprintf("chart-%d", n/20)
		entries[name] = append(entries[name], entry{
			"apiVersion": "v2", "appVersion": fmt.Sprint(n), "name": name, "version": fmt.Sprintf("%d.2.3", n),
			"description": "A server that keeps \"tables\" on disk, for clusters of any size.",
			"digest":      fmt.Sprintf("%064x", n),
			"urls":        []string{fmt.Sprintf("https://charts.example.com/files/server-%d.2.3.tgz", n)},
			"maintainers": []entry{{"name": "Example, Inc.", "url": "https://github.com/example/charts"}},
			"keywords":    []string{"database", "replication"},
		})
	}
	b, _ := json.Marshal(map[string]any{"apiVersion": "v1", "entries": entries})
	return b
}

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct {
		name string
		doc  []byte
	}{{"yaml", indexYAML(5000)}, {"json", indexJSON(5000)}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.doc)))
			b.ReportAllocs()
			for b.Loop() {
				r := NewReader(bytes.NewReader(c.doc), Limits{})
				for {
					if _, err := r.Next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(c.name+"/skip", func(b *testing.B) {
			b.SetBytes(int64(len(c.doc)))
			b.ReportAllocs()
			for b.Loop() {
				r := NewReader(bytes.NewReader(c.doc), Limits{})
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
				if err := r.Skip(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
