package summary_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/summary"
)

// scan returns the summary of text that is written in parts of size bytes.
func scan(t testing.TB, text []byte, size int) *api.Summary {
	t.Helper()
	s := summary.New()
	for rest := text; len(rest) > 0; {
		part := rest[:min(size, len(rest))]
		if n, err := s.Write(part); n != len(part) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		rest = rest[len(part):]
	}
	return s.Summary()
}

// The files of testdata are what the tools printed: bats 1.8.2, node
// 20.20.2, prove 3.44, hey 0.1.5, wrk 4.1.0 and k6 0.49.0 (v0) and 1.8.1 (the others).
func TestTools(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	for file, want := range map[string]*api.Summary{
		"tap-bats": {Format: "tap", Total: 4, Passed: 2, Skipped: 2},
		"tap-bats-failed": {Format: "tap", Total: 4, Passed: 1, Failed: 3,
			Failures: []string{"the price is right", "it ends (timeout after 1s)", "not there"}},
		"tap-bats-setup": {Format: "tap", Total: 2, Failed: 2, Failures: []string{"setup_file failed", "1 of 2 tests did not run"}},
		"tap-node":       {Format: "tap", Total: 4, Passed: 1, Failed: 1, Skipped: 2, Failures: []string{"basket"}},
		"tap-prove":      {Format: "tap", Total: 7, Passed: 4, Failed: 1, Skipped: 2, Failures: []string{"the price is right"}},
		"junit-node":     {Format: "junit", Total: 5, Passed: 2, Failed: 1, Skipped: 2, Failures: []string{"test: has a price"}},
		"tap13-bats":     {Format: "tap", Total: 8, Passed: 4, Failed: 2, Skipped: 2, Failures: []string{"the price is right", "not there"}},
		"junit-bats": {Format: "junit", Total: 8, Passed: 3, Failed: 3, Skipped: 2,
			Failures: []string{"bad.bats: the price is right", "bad.bats: it ends", "bad.bats: not there"}},
		"hey-ok": {Format: "hey", Requests: 200, Rate: 413.1970, P50: 18900 * us, P95: 37900 * us, P99: 40200 * us},
		"hey-flaky": {Format: "hey", Requests: 200, Errors: 43, Rate: 26994.7027, P50: 300 * us, P95: 900 * us, P99: 1600 * us,
			Failures: []string{"43 × status 500"}},
		"hey-refused": {Format: "hey", Requests: 20, Errors: 20, Rate: 9259.6665,
			Failures: []string{`20 × Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused`}},
		"hey-z":       {Format: "hey", Requests: 10, Rate: 9.9522, P50: 600 * us},
		"hey-csv":     nil, // a table of all requests, no summary
		"wrk-latency": {Format: "wrk", Requests: 201, Rate: 200.65, P50: 19240 * us, P99: 40010 * us},
		"wrk-flaky": {Format: "wrk", Requests: 63535, Errors: 15881, Rate: 57778.21,
			Failures: []string{"Non-2xx or 3xx responses: 15881"}},
		"k6-legacy": {Format: "k6", Total: 4, Passed: 4, Requests: 20, Rate: 86.042131, P50: 19680 * us, P95: 40850 * us},
		"k6-legacy-failed": {Format: "k6", Total: 6, Failed: 6, Requests: 20, Errors: 8, Rate: 1256.757428, P50: 291580, P95: 3640 * us,
			Failures: []string{"status is 200", "the body is ok", "never", "threshold on http_req_duration",
				"threshold on http_req_duration{kind:slow}", "threshold on http_req_failed"}},
		"k6-v0": {Format: "k6", Total: 4, Passed: 4, Requests: 20, Rate: 80.846066, P50: 24090 * us, P95: 38760 * us},
		"k6-v0-failed": {Format: "k6", Total: 6, Failed: 6, Requests: 20, Errors: 8, Rate: 1481.30175, P50: 471720, P95: 4900 * us,
			Failures: []string{"status is 200", "the body is ok", "never", "threshold on http_req_duration",
				"threshold on http_req_duration{kind:slow}", "threshold on http_req_failed"}},
		"k6-v1": {Format: "k6", Total: 4, Passed: 4, Requests: 20, Rate: 96.796782, P50: 21040 * us, P95: 32770 * us},
		"k6-v1-failed": {Format: "k6", Total: 7, Passed: 1, Failed: 6, Requests: 20, Errors: 6, Rate: 1339.095999, P50: 296380, P95: 6740 * us, P99: 7010 * us,
			Failures: []string{"http_req_duration: p(95)<1", "http_req_duration{kind:slow}: max<1", "http_req_failed: rate<0.01",
				"status is 200", "the body is ok", "never"}},
		"k6-v1-full": {Format: "k6", Total: 7, Passed: 1, Failed: 6, Requests: 20, Errors: 6, Rate: 2088.098984, P50: 127530, P95: 3070 * us,
			Failures: []string{"http_req_duration: p(95)<1", "http_req_duration{kind:slow}: max<1", "http_req_failed: rate<0.01",
				"status is 200", "the body is ok", "never"}},
		"k6-none": {Format: "k6"},
	} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{len(text), 1, 7, 512} {
				if got := scan(t, text, size); !reflect.DeepEqual(got, want) {
					t.Fatalf("in parts of %d bytes:\ngot  %+v\nwant %+v", size, got, want)
				}
			}
			noisy := append([]byte("Running tests…\n<html>no report</html>\nok  \texample.org/p\t0.1s\n"), text...)
			if got := scan(t, append(noisy, "\nDone: it took 3 s\n"...), 64); !reflect.DeepEqual(got, want) {
				t.Fatalf("among other output:\ngot  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestForms(t *testing.T) {
	long := strings.Repeat("é", 500)
	for _, c := range []struct {
		name, text string
		want       *api.Summary
	}{
		{"nothing", "", nil},
		{"no tool", "hello\nok\nnot ok\n1..x\n2..3\n✓ done\n  ✗ not done\n<a><b/></a>\n", nil},
		{"tap: plan alone", "1..3\n", &api.Summary{Format: "tap", Total: 3, Failed: 3, Failures: []string{"3 of 3 tests did not run"}}},
		{"tap: line without end", "1..1\nnot ok 1 - a", &api.Summary{Format: "tap", Total: 1, Failed: 1, Failures: []string{"a"}}},
		{"tap: carriage returns", "1..2\r\nok 1 - a\r\nnot ok 2 - b\r\n", &api.Summary{Format: "tap", Total: 2, Passed: 1, Failed: 1, Failures: []string{"b"}}},
		{"tap: all skipped", "1..0 # skip no network\n", &api.Summary{Format: "tap"}},
		{"tap: plan at the end", "ok 1\nnot ok 2\n1..2\n", &api.Summary{Format: "tap", Total: 2, Passed: 1, Failed: 1, Failures: []string{""}}},
		{"tap: no numbers", "1..2\nok - a\nok\n", &api.Summary{Format: "tap", Total: 2, Passed: 2}},
		{"tap: no plan", "TAP version 14\nok 1 - a\n", &api.Summary{Format: "tap", Total: 2, Passed: 1, Failed: 1,
			Failures: []string{"the output ended before the number of tests was said"}}},
		{"tap: to do", "1..3\nnot ok 1 a # TODO later\nok 2 b # todo\nnot ok 3 c # SKIP: no network\n", &api.Summary{Format: "tap", Total: 3, Skipped: 3}},
		{"tap: escaped", "1..2\nnot ok 1 - a \\# skip\nnot ok 2 - b # 3\n", &api.Summary{Format: "tap", Total: 2, Failed: 2, Failures: []string{"a # skip", "b # 3"}}},
		{"tap: subtest", "TAP version 14\n# Subtest: a\n    not ok 1 - b\n    1..1\nnot ok 1 - a\n  ---\n  at: x\n  ...\n1..1\n",
			&api.Summary{Format: "tap", Total: 1, Failed: 1, Failures: []string{"a"}}},
		{"tap: bail out", "1..3\nok 1\nBail out! no database\n", &api.Summary{Format: "tap", Total: 3, Passed: 1, Failed: 2,
			Failures: []string{"Bail out! no database", "2 of 3 tests did not run"}}},
		{"tap: bail out at the end", "1..1\nok 1\nBail out!\n", &api.Summary{Format: "tap", Total: 2, Passed: 1, Failed: 1, Failures: []string{"Bail out!"}}},
		{"tap: time", "1..2\nnot ok 1 a # in 12 ms\nnot ok 2 b # timeout after 3 s\n", &api.Summary{Format: "tap", Total: 2, Failed: 2,
			Failures: []string{"a", "b (timeout after 3 s)"}}},
		{"tap: two streams", "1..1\nok 1\n1..2\nok 1\nnot ok 2 b\n", &api.Summary{Format: "tap", Total: 3, Passed: 2, Failed: 1, Failures: []string{"b"}}},
		{"tap: two plans at the end", "ok 1\n1..1\nok 1\nok 2\n1..2\n", &api.Summary{Format: "tap", Total: 3, Passed: 3}},
		{"tap: hostile plan", "1..99999999999999999999\n", nil},
		{"tap: controls", "1..1\nnot ok 1 \x1b[31mred\x00\x9b\xff\n", &api.Summary{Format: "tap", Total: 1, Failed: 1, Failures: []string{"red��"}}},
		{"tap: long name", "1..1\nnot ok 1 " + long + "\n", &api.Summary{Format: "tap", Total: 1, Failed: 1, Failures: []string{long[:196] + "…"}}},
		{"junit: one line", `<?xml version="1.0"?><testsuite name="s"><testcase name='a"b'/><testcase name="c"><failure/><error/></testcase></testsuite>`,
			&api.Summary{Format: "junit", Total: 2, Passed: 1, Failed: 1, Failures: []string{"c"}}},
		{"junit: entities", `<testsuite><testcase classname="&lt;c&gt;" name="&#65;&#x42;&quot;&apos;&amp;&bomb;&#xD800;&"><error/></testcase></testsuite>`,
			&api.Summary{Format: "junit", Total: 1, Failed: 1, Failures: []string{`<c>: AB"'&&bomb;&#xD800;&`}}},
		{"junit: bomb", `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;"><!ENTITY c SYSTEM "file:///etc/passwd">]>` + "\n" +
			`<testsuite><testcase name="&b;&c;"><failure>&b;</failure></testcase></testsuite>`,
			&api.Summary{Format: "junit", Total: 1, Failed: 1, Failures: []string{"&b;&c;"}}},
		{"junit: markup in text", "<testsuites><testsuite><testcase name=\"a\"><system-out><![CDATA[</testcase>]]]><failure/>]]></system-out>" +
			"a < b <!-- <failure/> --><skipped/></testcase></testsuite></testsuites>\n1..5\n",
			&api.Summary{Format: "junit", Total: 1, Skipped: 1}},
		{"junit: prolog", `<!DOCTYPE x [<!ELEMENT a ANY> %b; "]>" ]> <!-- > --> <?x > ?><testsuite><testcase name="a"/></testsuite>`, &api.Summary{Format: "junit", Total: 1, Passed: 1}},
		{"junit: after what never ends", "<?php\n" + strings.Repeat("x\n", 40000) + "<testsuite><testcase name=\"a\"/></testsuite>\n", &api.Summary{Format: "junit", Total: 1, Passed: 1}},
		{"junit: markup within a test", `<testsuite><testcase name="a"><x><failure/><skipped/></x></testcase></testsuite>`, &api.Summary{Format: "junit", Total: 1, Passed: 1}},
		{"junit: ends early", "<testsuites><testsuite><testcase name=\"a\"/>",
			&api.Summary{Format: "junit", Total: 2, Passed: 1, Failed: 1, Failures: []string{"the report ended early"}}},
		{"junit: in a test", "<testsuites><testsuite><testcase name=\"a\"><failure>",
			&api.Summary{Format: "junit", Total: 1, Failed: 1, Failures: []string{"the report ended early"}}},
		{"junit: around the tests", `<testsuite name="s"><error/><testcase name="a"/></testsuite>`,
			&api.Summary{Format: "junit", Total: 2, Passed: 1, Failed: 1, Failures: []string{"s"}}},
		{"junit: again", `<testsuite><testcase name="a"><rerunFailure/></testcase></testsuite>` + "\n" + `<j:testsuite><j:testcase name="b"/></j:testsuite>`,
			&api.Summary{Format: "junit", Total: 2, Passed: 2}},
		{"junit: long tag", `<testsuite><testcase name="a" x="` + strings.Repeat(">", 9000) + `"/></testsuite>`, &api.Summary{Format: "junit", Total: 1, Passed: 1}},
		{"junit: not at the start of a line", `see <testsuite><testcase/></testsuite>`, nil},
		{"hey: several", "Summary:\n  Total:\t1.0 secs\n  Requests/sec:\t20.0\n\nLatency distribution:\n  50% in 0.2 secs\n\nStatus code distribution:\n  [200]\t20 responses\n" +
			"Summary:\n  Total:\t3.0 secs\n  Requests/sec:\t10.0\n\nLatency distribution:\n  50%% in 0.1 secs\n\nStatus code distribution:\n  [200]\t28 responses\n  [404]\t2 responses\n",
			&api.Summary{Format: "hey", Requests: 50, Errors: 2, Rate: 12.5, P50: 200 * time.Millisecond, Failures: []string{"2 × status 404"}}},
		{"hey: numbers that are none", "Summary:\n  Requests/sec:\tNaN\nLatency distribution:\n  50% in 1e300 secs\n  95% in -1 secs\nStatus code distribution:\n  [200]\t99999999999999999999 responses\n",
			&api.Summary{Format: "hey"}},
		{"wrk: sockets", "Running 1s test @ http://x\n  5 requests in 1.00s, 1KB read\n  Socket errors: connect 1, read 2, write 0, timeout 4\nRequests/sec: 5.0\n",
			&api.Summary{Format: "wrk", Requests: 12, Errors: 7, Rate: 5, Failures: []string{"Socket errors: connect 1, read 2, write 0, timeout 4"}}},
		{"k6: old marks", "     checks.........................: 50.00% ✓ 1 ✗ 1\n     ✗ a\n   ✓ http_req_failed................: 40.00% ✓ 8 ✗ 12\n     http_reqs..: 20 5/s\n",
			&api.Summary{Format: "k6", Total: 2, Passed: 1, Failed: 1, Requests: 20, Errors: 8, Rate: 5, Failures: []string{"a"}}},
		{"several tools", "1..1\nok 1\nSummary:\n  Requests/sec:\t10.0\n", &api.Summary{Format: "tap", Total: 1, Passed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{len(c.text) + 1, 1, 3} {
				if got := scan(t, []byte(c.text), size); !reflect.DeepEqual(got, c.want) {
					t.Fatalf("in parts of %d bytes:\ngot  %+v\nwant %+v", size, got, c.want)
				}
			}
		})
	}
}

func TestFailuresAreBounded(t *testing.T) {
	tap, junit := "1..1000\n", "<testsuite>"
	for i := range 1000 {
		tap += fmt.Sprintf("not ok %d - test %d\n", i+1, i+1)
		junit += fmt.Sprintf("<testcase name='test %d'><error/></testcase>", i+1)
	}
	for _, text := range []string{tap, junit + "</testsuite>"} {
		got := scan(t, []byte(text), 4096)
		if got.Failed != 1000 || len(got.Failures) != 20 || got.Failures[19] != "test 20" {
			t.Errorf("%d failed, %d names, the last is %q", got.Failed, len(got.Failures), got.Failures[len(got.Failures)-1])
		}
	}
}

// What a summary says of unfinished output does not change what follows.
func TestSummaryInBetween(t *testing.T) {
	for _, text := range []string{
		"1..2\nok 1 - a\nnot ok 2 - bc\n", "<testsuite><testcase name=\"d\"><failure/></testcase></testsuite>\n",
		"Summary:\n  Requests/sec:\t1\nStatus code distribution:\n  [500]\t12 responses\n", "  ✗ a\n  checks...: 1\n  ✗ b\n",
	} {
		s := summary.New()
		for i := range len(text) {
			s.Write([]byte{text[i]})
			s.Summary()
		}
		if got, want := s.Summary(), scan(t, []byte(text), len(text)); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	for _, text := range []string{
		"x", "<", "<a ", "<testsuite><testcase a=\"", "<testsuite>", "  ✗ a\n", "1..1\nnot ok 1 a\n", "<!--", "<!DOCTYPE [",
		"Summary:\n  Requests/sec:\t1\nError distribution:\n  [1]\tno\n", "not ok " + strings.Repeat("#", 2000),
	} {
		s := summary.New()
		block := bytes.Repeat([]byte(text), 1<<18/len(text))
		before := measure.Live()
		for range 16 {
			s.Write(block)
		}
		if kept := measure.Live() - before; kept > 512<<10 {
			t.Errorf("%.20q: %d bytes are kept", text, kept)
		}
		s.Summary()
	}
}

func FuzzScanner(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, 7)
	}
	instant := "Summary:\n  Total:\t1e-320 secs\n  Requests/sec:\t8.0\n\nStatus code distribution:\n  [200]\t100 responses\n\n"
	f.Add([]byte(instant+instant), 1) // their rate is no number of JSON
	f.Add([]byte("<!DOCTYPE x [<!ENTITY a 'b'>]><testsuite a=\"><\"><![CDATA[]]]]><!----></testsuite>"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		whole := scan(t, text, len(text)+1)
		if parts := scan(t, text, max(1, min(size, 100))); !reflect.DeepEqual(whole, parts) {
			t.Fatalf("whole %+v, in parts %+v", whole, parts)
		}
		if whole == nil {
			return
		}
		if whole.Total != whole.Passed+whole.Failed+whole.Skipped || min(whole.Passed, whole.Failed, whole.Skipped) < 0 {
			t.Fatalf("%+v does not add up", whole)
		}
		if _, err := json.Marshal(whole); err != nil {
			t.Fatal(err)
		}
		if len(whole.Failures) > 20 {
			t.Fatalf("%d failures", len(whole.Failures))
		}
		for _, name := range whole.Failures {
			if len(name) > 200 || !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
				t.Fatalf("failure %q", name)
			}
		}
	})
}
