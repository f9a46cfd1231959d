package oci_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// patience notes the pauses between requests, and makes them short.
type patience []time.Duration

func (p *patience) of(r *oci.Repository) {
	now := noon
	r.Pause(func(_ context.Context, d time.Duration) error {
		*p = append(*p, d)
		now = now.Add(d)
		return nil
	}, func() time.Time { return now })
}

func TestRetry(t *testing.T) {
	const s = time.Second
	date := func(d time.Duration) string { return noon.Add(d).Format(http.TimeFormat) }
	for name, row := range map[string]struct {
		defect testenv.Defect
		header string // Retry-After
		within time.Duration
		pauses []time.Duration
		fails  string
	}{
		"busy twice":            {testenv.Defect{Status: 429, Times: 2}, "7", 0, []time.Duration{7 * s, 7 * s}, ""},
		"busy until":            {testenv.Defect{Status: 503, Times: 1}, date(20 * s), 0, []time.Duration{20 * s}, ""},
		"busy until before":     {testenv.Defect{Status: 503, Times: 1}, date(-20 * s), 0, []time.Duration{0}, ""},
		"busy, no hint":         {testenv.Defect{Status: 503, Times: 3}, "", 0, []time.Duration{s / 2, s, 2 * s}, ""},
		"busy, odd hint":        {testenv.Defect{Status: 429, Times: 1}, "soon", 0, []time.Duration{s / 2}, ""},
		"busy, negative hint":   {testenv.Defect{Status: 429, Times: 1}, "-5", 0, []time.Duration{s / 2}, ""},
		"proxy in between":      {testenv.Defect{Status: 502, Times: 1}, "", 0, []time.Duration{s / 2}, ""},
		"always busy":           {testenv.Defect{Status: 429}, "1", 0, []time.Duration{s, s, s, s}, "429 Too Many Requests: try again in 1s"},
		"busy for long":         {testenv.Defect{Status: 429}, "3600", 0, nil, "try again in 1h0m0s"},
		"busy for ever":         {testenv.Defect{Status: 429}, "99999999999999999999", 0, []time.Duration{s / 2, s, 2 * s, 4 * s}, "429"},
		"longer than there is":  {testenv.Defect{Status: 429}, "30", 20 * s, nil, "try again in 30s"},
		"as long as there is":   {testenv.Defect{Status: 429, Times: 1}, "30", 40 * s, []time.Duration{30 * s}, ""},
		"broken":                {testenv.Defect{Status: 500}, "", 0, nil, "500"},
		"hung up":               {testenv.Defect{Do: testenv.Cut, After: -1, Times: 2}, "", 0, []time.Duration{s / 2, s}, ""},
		"always hung up":        {testenv.Defect{Do: testenv.Cut, After: -1}, "", 0, []time.Duration{s / 2, s}, "EOF"},
		"hung up in the middle": {testenv.Defect{Do: testenv.Cut, After: 5, Phase: testenv.GetManifest}, "", 0, nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			want := g.Push("team/app", "v1", layer("x"))
			if row.header != "" {
				row.defect.Header = http.Header{"Retry-After": {row.header}}
			}
			g.Break(&row.defect)
			r := plain(t, g)
			var p patience
			p.of(r)
			ctx := t.Context()
			if row.within > 0 {
				ctx = deadline{ctx, noon.Add(row.within)}
			}
			d, _, err := r.Manifest(ctx, ocispec.Descriptor{Digest: want.Digest})
			if row.fails == "" && (err != nil || d.Digest != want.Digest) || row.fails != "" && (err == nil || !strings.Contains(err.Error(), row.fails)) {
				t.Error(d, err)
			}
			if len(p) != len(row.pauses) {
				t.Fatal(p)
			}
			for i := range p {
				if p[i] != row.pauses[i] {
					t.Error(p)
				}
			}
			if n := g.Count(); n != len(p)+1 {
				t.Errorf("%d requests", n)
			}
			if e, ok := errors.AsType[*oci.StatusError](err); ok && row.header == "3600" && e.After != time.Hour {
				t.Error(e.After)
			}
		})
	}
}

// deadline has a deadline by the clock of the test.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

// Waiting ends with the context.
func TestRetryObeysContext(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(&testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {"30"}}})
	r := plain(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	r.Pause(func(ctx context.Context, d time.Duration) error {
		cancel()
		return transport.Sleep(ctx, d)
	}, time.Now)
	if _, err := r.Head(ctx, "v1"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// What was refused because of its rate is sent again whatever it changes, if
// its content can be had again; what may have had an effect is not.
func TestRetryOfUploads(t *testing.T) {
	m := []byte(`{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `","config":{},"layers":[]}`)
	d := testenv.Blob{MediaType: ocispec.MediaTypeImageManifest, Data: m}.Descriptor()
	b := testenv.Blob{Data: []byte("x")}
	for _, row := range []struct {
		phase  testenv.Phase
		status int
		pauses int
	}{
		{testenv.PutManifest, 429, 1}, {testenv.PutManifest, 503, 0}, {testenv.PutBlob, 429, 1}, {testenv.PutBlob, 503, 0},
	} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(&testenv.Defect{Phase: row.phase, Status: row.status, Times: 1})
		r := plain(t, g)
		var p patience
		p.of(r)
		push := func() error { return r.Push(t.Context(), d, strings.NewReader(string(m))) }
		if row.phase == testenv.PutBlob {
			push = func() error { return r.Push(t.Context(), b.Descriptor(), strings.NewReader("x")) }
		}
		if err := push(); (err == nil) != (row.pauses == 1) || len(p) != row.pauses {
			t.Error(row, err, p)
		}
	}
}
