package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A recordingServer is a server that records its requests.
type recordingServer interface {
	Count(phases ...testenv.Phase) int
	Requests() []testenv.Request
	Reset()
}

type (
	recordingServersKey struct{} // key of a script's recording servers by variable
	chartsKey           struct{} // key of the chart repositories among them
)

// chartServers starts the chart repositories of a script. $CHARTS is public,
// $CHARTSKEYS requires user "ci" with the password "s3cret-canary", and
// $CHARTSTLS requires the certificate in secrets/charts. All have the charts web
// 1.0.0, 1.1.0 and 2.0.0-rc.1, and cache 0.1.0. $CHARTSKEYSCANARY is the URL with
// user and password.
func chartServers(t *testing.T, env *testscript.Env, used func(...string) bool) error {
	if !used("CHARTS") {
		return nil
	}
	ca := testenv.NewCA(t)
	all, desks := map[string]*testenv.Charts{}, env.Values[recordingServersKey{}].(map[string]recordingServer)
	for name, config := range map[string]testenv.ChartsConfig{
		"CHARTS":     {},
		"CHARTSKEYS": {Username: "ci", Password: "s3cret-canary"},
		"CHARTSTLS":  {CA: ca, Mutual: true},
	} {
		if !used(name) {
			continue
		}
		s := testenv.StartCharts(t, config)
		for _, version := range []string{"1.0.0", "1.1.0", "2.0.0-rc.1"} {
			s.Put(testenv.ChartVersion{Name: "web", Version: version, Files: map[string]string{"values-prod.yaml": "replicas: 3\n"}})
		}
		s.Put(testenv.ChartVersion{Name: "cache", Version: "0.1.0"})
		all[name], desks[name] = s, s
		env.Setenv(name, s.URL())
		env.Setenv(name+"CANARY", strings.Replace(s.URL(), "//", "//ci:s3cret-canary@", 1))
	}
	env.Values[chartsKey{}] = all
	client, key := ca.Client("ci")
	for name, text := range map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": client, "tls.key": key} {
		file := filepath.Join(env.WorkDir, "secrets", "charts", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// changeCharts changes a repository: chart VARIABLE put NAME VERSION
// [PATH=TEXT]…, chart VARIABLE forge NAME VERSION (with a wrong digest), chart
// VARIABLE remove NAME VERSION, or chart VARIABLE index FILE.
func changeCharts(ts *testscript.TestScript, _ bool, args []string) {
	s := ts.Value(chartsKey{}).(map[string]*testenv.Charts)[args[0]]
	switch args[1] {
	case "index":
		s.SetIndex([]byte(ts.ReadFile(args[2])))
		return
	case "remove":
		s.Remove(args[2], args[3])
		return
	}
	v := testenv.ChartVersion{Name: args[2], Version: args[3], Files: map[string]string{}}
	if args[1] == "forge" {
		v.Digest = strings.Repeat("0", 64)
	}
	for _, arg := range args[4:] {
		path, text, _ := strings.Cut(arg, "=")
		v.Files[path] = text + "\n"
	}
	s.Put(v)
}
