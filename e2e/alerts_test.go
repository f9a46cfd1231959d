package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A dashboard is the Grafana dashboard in docs/deploy.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
}

// TestAlerts checks that Prometheus has a series for every selector in the alerts and the dashboard
// that is about headgate serve or headgate tester. The names of leader election metrics, which only
// headgate-controller has, must be documented.
func TestAlerts(t *testing.T) {
	t.Parallel()
	deploy, err := filepath.Abs("../docs/deploy")
	must(t, err)
	alerts := filepath.Join(deploy, "alerts.yaml")
	run(t, "promtool", "check", "rules", alerts)
	tests := filepath.Join(deploy, "alerts_test.yaml")
	run(t, "promtool", "test", "rules", tests)
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	must(t, yaml.Unmarshal([]byte(read(t, alerts)), &rules))
	var board dashboard
	must(t, json.Unmarshal([]byte(read(t, filepath.Join(deploy, "dashboard.json"))), &board))

	repo, _ := newSampleRepo(t)
	s := newServeProcess(t, "--from", "https://git.example.org/app="+repo.Dir, "--hook-secret", "hook")
	s.secret("hook", stringMap{"token": "hook-key"})
	s.document("app.yaml", hourlyRepository("app", "https://git.example.org/app"))
	s.start()
	s.waitUntil("an artifact", "gitrepository/app", isReady)
	for key, want := range map[string]int{"": http.StatusUnauthorized, "hook-key": http.StatusAccepted} {
		if code := callHook(t, s.url+"/hook/gitrepository/app", key, "push", pushBody); code != want {
			t.Errorf("a hook with the key %q is answered %d, want %d", key, code, want)
		}
	}
	p := startScraper(t, alerts, s.url, startTester(t).url)

	documented, asked := read(t, "../docs/reference/metrics.md"), 0
	selectors := regexp.MustCompile(`\b(headgate|process|leader_election)_\w+(\{[^}]*\})?`)
	check := func(where, expr string) {
		for _, selector := range selectors.FindAllString(expr, -1) {
			name, _, _ := strings.Cut(selector, "{")
			if strings.HasPrefix(name, "leader_election_") {
				if !strings.Contains(documented, name) {
					t.Errorf("%s: no document has %s", where, name)
				}
				continue
			}
			asked++
			waitUntil(t, where+": series of "+selector, func() bool { return len(p.query(selector)) > 0 })
		}
		p.query(expr)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			check(rule.Alert, rule.Expr)
			if !strings.Contains(read(t, tests), "- alertname: "+rule.Alert+"\n") {
				t.Errorf("%s is not tested", rule.Alert)
			}
		}
	}
	values := strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*")
	labels := regexp.MustCompile(`\{\{(\w+)\}\}`)
	for i, panel := range board.Panels {
		if panel.ID != i+1 || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("panel %q has the ID %d and the place %+v", panel.Title, panel.ID, panel.GridPos)
		}
		for _, target := range panel.Targets {
			expr := values.Replace(target.Expr)
			check(panel.Title, expr)
			for _, label := range labels.FindAllStringSubmatch(target.LegendFormat, -1) {
				if strings.Contains(expr, "leader_election_") {
					continue
				}
				waitUntil(t, panel.Title+": a value with the label "+label[1], func() bool {
					return slices.ContainsFunc(p.query(expr), func(series map[string]string) bool { return series[label[1]] != "" })
				})
			}
		}
	}
	if asked < 40 {
		t.Errorf("only %d selectors were found", asked)
	}
}

// A scraper is the address of a Prometheus.
type scraper struct {
	t   *testing.T
	url string
}

// startScraper starts a Prometheus with rules that scrapes the servers at urls.
func startScraper(t *testing.T, rules string, urls ...string) scraper {
	t.Helper()
	dir := t.TempDir()
	config := write(t, filepath.Join(dir, "prometheus.yml"), fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: headgate
  honor_labels: true
  static_configs: [{targets: [%s]}]
`, rules, strings.ReplaceAll(strings.Join(urls, ", "), "http://", "")))
	log := start(t, exec.Command(tool(t, "prometheus"), "--config.file="+config, "--web.listen-address=127.0.0.1:0", "--storage.tsdb.path="+filepath.Join(dir, "data")))
	listens := regexp.MustCompile(`msg="Listening on".* address=(127\.0\.0\.1:\d+)`)
	var found []string
	waitUntil(t, "Prometheus listens", func() bool {
		found = listens.FindStringSubmatch(log.String())
		return found != nil
	})
	return scraper{t, "http://" + found[1]}
}

// query returns the labels of the series that an expression selects now.
func (p scraper) query(expr string) (series []map[string]string) {
	p.t.Helper()
	code, text := ask(p.t, "GET", p.url+"/api/v1/query?query="+url.QueryEscape(expr), "")
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if code == http.StatusServiceUnavailable { // it replays its write-ahead log
		return nil
	}
	if err := json.Unmarshal([]byte(text), &answer); code != http.StatusOK || err != nil {
		p.t.Fatalf("%s: %d %s, %v", expr, code, text, err)
	}
	for _, r := range answer.Data.Result {
		series = append(series, r.Metric)
	}
	return series
}
