package chart

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestArchivesThatAreTooMuchTogether: each alone is within the limit.
func TestArchivesThatAreTooMuchTogether(t *testing.T) {
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	var list []string
	for i := range 20 {
		name, noise := fmt.Sprintf("c%02d", i), make([]byte, 20<<10)
		for j := range noise {
			noise[j] = "0123456789abcdefghijklmnopqrstuv"[rand.N(32)]
		}
		site.Put(testenv.ChartVersion{Name: name, Version: "1.0.0", Files: map[string]string{"noise.txt": string(noise)}})
		list = append(list, name+" * "+site.URL())
	}
	s, files := newSupply(t, ""), &spools{t: t}
	s.env.Limits.Bytes, s.env.Limits.Temp = 64<<10, files.create
	_, err := completed(t, s, umbrella(list[:2]...), ".")
	if err != nil {
		t.Fatal(err)
	}
	site.Reset()
	_, err = completed(t, s, umbrella(list...), ".")
	demandFailure(t, err, "more than 65536 bytes in all archives together")
	if n := site.Count(testenv.GetChart); n > 4+parallelFetches {
		t.Errorf("%d charts were asked for", n)
	}
	files.demandClosed()
}

// TestArchivesThatUnpackToTooMuchTogether: they are small as they lie in the
// source, and each alone is within the limit.
func TestArchivesThatUnpackToTooMuchTogether(t *testing.T) {
	tree := fstest.MapFS{}
	var list []string
	for i := range 10 {
		name := fmt.Sprintf("c%02d", i)
		tree[name+".tgz"] = &fstest.MapFile{Data: testenv.ChartArchive(t, map[string]string{
			name + "/Chart.yaml": chartYAML(name, "1.0.0"), name + "/big.txt": strings.Repeat("0", 20<<10),
		})}
		list = append(list, name+" * file://"+name+".tgz")
	}
	tree["Chart.yaml"] = &fstest.MapFile{Data: []byte(chartYAML("umbrella", "0.1.0", list...))}
	for _, c := range []struct {
		limit int64
		says  string
	}{{-1, ""}, {1 << 20, ""}, {64 << 10, "more than 65536 bytes in all archives together"}} {
		s, spools := newSupply(t, ""), &spools{t: t}
		s.env.Limits.Bytes, s.env.Limits.Temp = c.limit, spools.create
		_, err := completed(t, s, tree, ".")
		if c.says == "" && err != nil {
			t.Errorf("limit %d: %v", c.limit, err)
		}
		if c.says != "" {
			demandFailure(t, err, `"c02"`, c.says)
		}
		if n := len(spools.files); c.says != "" && n > 10 {
			t.Errorf("%d spools were made", n)
		}
		spools.demandClosed()
	}
}
