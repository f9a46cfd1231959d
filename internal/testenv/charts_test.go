package testenv_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/testenv"
)

// getChart asks for a URL with further headers, in pairs.
func getChart(t *testing.T, h *http.Client, url string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

func TestChartsIndexTellsTheArchives(t *testing.T) {
	for _, format := range []string{"yaml", "json"} {
		t.Run(format, func(t *testing.T) {
			s := testenv.StartCharts(t, testenv.ChartsConfig{JSON: format == "json"})
			s.Put(testenv.ChartVersion{Name: "web", Version: "1.9.0"})
			archive := s.Put(testenv.ChartVersion{Name: "web", Version: "1.10.0", Files: map[string]string{"values.yaml": "a: b\n"}})
			s.Put(testenv.ChartVersion{Name: "db", Version: "0.1.0", URLs: []string{"https://other/db.tgz", "oci://r/db"}, Digest: "00", Entry: map[string]any{"created": nil}})

			resp, body := getChart(t, http.DefaultClient, s.URL()+"/index.yaml")
			if got := json.Valid(body); got != (format == "json") {
				t.Errorf("json: %t", got)
			}
			var index struct {
				Entries map[string][]map[string]any
			}
			if err := yaml.Unmarshal(body, &index); err != nil {
				t.Fatal(err)
			}
			web := index.Entries["web"]
			if len(web) != 2 || web[0]["version"] != "1.10.0" || web[1]["version"] != "1.9.0" {
				t.Fatalf("web: %v", web)
			}
			if sum := sha256.Sum256(archive); web[0]["digest"] != hex.EncodeToString(sum[:]) {
				t.Errorf("digest %v", web[0]["digest"])
			}
			if _, got := getChart(t, http.DefaultClient, s.URLOf("web-1.10.0.tgz")); !bytes.Equal(got, archive) {
				t.Error("the archive is not what was put")
			}
			db := index.Entries["db"][0]
			if _, has := db["created"]; has || db["digest"] != "00" || len(db["urls"].([]any)) != 2 {
				t.Errorf("db: %v", db)
			}

			again, _ := getChart(t, http.DefaultClient, s.URL()+"/index.yaml", "If-None-Match", resp.Header.Get("ETag"))
			dated, _ := getChart(t, http.DefaultClient, s.URL()+"/index.yaml", "If-Modified-Since", resp.Header.Get("Last-Modified"))
			if again.StatusCode != http.StatusNotModified || dated.StatusCode != http.StatusNotModified {
				t.Errorf("%d, %d", again.StatusCode, dated.StatusCode)
			}
			var statuses []int
			for _, q := range s.Requests() {
				statuses = append(statuses, q.Status)
			}
			if !slices.Equal(statuses, []int{200, 200, 304, 304}) || s.Count(testenv.GetIndex) != 3 {
				t.Errorf("statuses %v", statuses)
			}
		})
	}
}

func TestChartArchiveIsATarball(t *testing.T) {
	files := map[string]string{"web/Chart.yaml": "name: web\n", "web/a": "b"}
	archive := testenv.ChartArchive(t, files)
	if !bytes.Equal(archive, testenv.ChartArchive(t, files)) {
		t.Error("two archives of the same files differ")
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for r, n := tar.NewReader(z), 0; ; n++ {
		h, err := r.Next()
		if err == io.EOF && n == len(files) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(r); err != nil || string(data) != files[h.Name] {
			t.Errorf("%s: %q %v", h.Name, data, err)
		}
	}
}

func TestChartsCompressesStampsAndWeakens(t *testing.T) {
	s := testenv.StartCharts(t, testenv.ChartsConfig{Gzip: true, Restamp: true, Weak: true, Path: "/"})
	s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	resp, first := getChart(t, http.DefaultClient, s.URL()+"/index.yaml")
	if !resp.Uncompressed || !strings.HasPrefix(resp.Header.Get("ETag"), `W/"`) {
		t.Errorf("uncompressed %t, ETag %s", resp.Uncompressed, resp.Header.Get("ETag"))
	}
	if _, second := getChart(t, http.DefaultClient, s.URL()+"/index.yaml"); bytes.Equal(first, second) {
		t.Error("the index is not stamped anew")
	}
	s.SetIndex([]byte("raw"))
	if _, body := getChart(t, http.DefaultClient, s.URL()+"/index.yaml"); string(body) != "raw" {
		t.Errorf("got %q", body)
	}
	s.SetIndex(nil)
	s.PutFile("web-1.0.0.tgz.prov", []byte("signed"))
	if _, body := getChart(t, http.DefaultClient, s.URLOf("web-1.0.0.tgz.prov")); string(body) != "signed" {
		t.Errorf("got %q", body)
	}
}

func TestChartsWantsCredentials(t *testing.T) {
	ca := testenv.NewCA(t)
	s := testenv.StartCharts(t, testenv.ChartsConfig{CA: ca, Mutual: true, Username: "u", Password: "p"})
	cert, key := ca.Client("client")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}}}
	t.Cleanup(h.CloseIdleConnections)
	if resp, _ := getChart(t, h, s.URL()+"/index.yaml"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d without credentials", resp.StatusCode)
	}
	if resp, _ := getChart(t, h, s.URL()+"/index.yaml", "Authorization", "Basic dTpw"); resp.StatusCode != http.StatusOK {
		t.Errorf("status %d with credentials", resp.StatusCode)
	}
	if q := s.Requests(); q[0].Status != 401 || q[1].Authorization != "Basic dTpw" || q[1].Certificate != "client" {
		t.Errorf("%+v", q)
	}
}

func TestChartsMisbehaves(t *testing.T) {
	s := testenv.StartCharts(t, testenv.ChartsConfig{})
	s.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	for _, c := range []struct {
		name   string
		defect *testenv.Defect
		ok     func(*http.Response, []byte, error) bool
	}{
		{"endless", &testenv.Defect{Do: testenv.Endless}, func(_ *http.Response, b []byte, err error) bool { return err == nil && len(b) == 1<<20 }},
		{"swell", &testenv.Defect{Do: testenv.Swell, After: 100 << 10}, func(_ *http.Response, b []byte, err error) bool { return err == nil && len(b) > 100<<10 }},
		{"cut", &testenv.Defect{Do: testenv.Cut, After: 10}, func(_ *http.Response, b []byte, err error) bool { return err != nil && len(b) == 10 }},
		{"end", &testenv.Defect{Do: testenv.End, After: 10}, func(_ *http.Response, b []byte, err error) bool { return err == nil && len(b) == 10 }},
		{"busy", &testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {"7"}}}, func(r *http.Response, _ []byte, _ error) bool {
			return r.StatusCode == 429 && r.Header.Get("Retry-After") == "7"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Break(c.defect)
			resp, err := http.Get(s.URL() + "/index.yaml")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			if !c.ok(resp, body, err) {
				t.Errorf("status %d, %d bytes, %v", resp.StatusCode, len(body), err)
			}
		})
	}
}
