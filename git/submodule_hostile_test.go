package git_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// mapping returns an entry of .gitmodules for the path s.
func mapping(url string) string {
	return "[submodule \"s\"]\n\tpath = s\n\turl = \"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(url) + "\"\n"
}

// Hostile entries of .gitmodules are refused with an error that names the submodule,
// before any request is sent.
func TestHostileModules(t *testing.T) {
	t.Parallel()
	app, server, pin := withSubmodule(t, map[string]string{"x": "1"})
	good := server.URL + "/sub.git"
	long := strings.Repeat("x", 1<<18)
	env := source.Env{Local: map[string]string{server.URL + "/app.git": app.Dir}}
	for name, row := range map[string]struct{ text, say string }{
		"no entry":                 {"[submodule \"t\"]\npath = t\nurl = " + good, ".gitmodules: it maps no URL to this path|spec.ignore"},
		"no file":                  {"", "it maps no URL to this path"},
		"no url":                   {"[submodule \"s\"]\npath = s\n", `url of "s": it is not set`},
		"no url, other sections":   {"[core]\nx = 1\n[submodule \"s\"]\npath = s\n", `url of "s": it is not set`},
		"empty url":                {mapping(""), "line 3: url is empty"},
		"bare url":                 {"[submodule \"s\"]\npath = s\nurl\n", "line 3: url is empty"},
		"url twice":                {mapping(good) + "url = " + good, "line 4: url is set a second time"},
		"url twice by case":        {mapping(good) + "[Submodule \"s\"]\nURL = ext::sh", "line 5: url is set a second time"},
		"path twice":               {mapping(good) + "path = t", "line 4: path is set a second time"},
		"two names for one path":   {mapping(good) + "[submodule \"t\"]\npath = s\nurl = ext::sh", `"s" and "t" have the same path`},
		"absolute path":            {"[submodule \"s\"]\npath = /s\nurl = " + good, "maps no URL"},
		"path outside":             {"[submodule \"s\"]\npath = ../s\nurl = " + good, "maps no URL"},
		"path with slash":          {"[submodule \"s\"]\npath = s/\nurl = " + good, "maps no URL"},
		"path of another case":     {"[submodule \"s\"]\npath = S\nurl = " + good, "maps no URL"},
		"name outside":             {"[submodule \"a/../../x\"]\npath = s\nurl = " + good, "leads out of a directory"},
		"name outside, backslash":  {"[submodule \"..\\\\x\"]\npath = s\nurl = " + good, "leads out of a directory"},
		"name empty":               {"[submodule \"\"]\npath = s\nurl = " + good, "is empty"},
		"command":                  {mapping(good) + "update = !touch /tmp/owned", "line 4: update is a command, which is never run"},
		"not well formed":          {mapping(good) + "[", ".gitmodules: line 4: a section"},
		"NUL":                      {mapping(good) + "\x00", ".gitmodules: line 4: a NUL byte"},
		"file":                     {mapping("file:///etc/passwd"), `scheme "file": want http, https or ssh`},
		"git":                      {mapping("git://127.0.0.1/x"), `scheme "git"`},
		"ftp":                      {mapping("ftp://127.0.0.1/x"), `scheme "ftp"`},
		"helper":                   {mapping("ext::sh -c touch% /tmp/owned"), "remote helper"},
		"helper with a URL":        {mapping("ext::" + good), "remote helper"},
		"helper without a name":    {mapping("::x"), "remote helper"},
		"option":                   {mapping("--upload-pack=touch"), "begins with a dash"},
		"option as user":           {mapping("ssh://-oProxyCommand=sh@127.0.0.1/x"), "begins with a dash"},
		"option as host":           {mapping("ssh://-oProxyCommand=sh/x"), "begins with a dash"},
		"option as host, escaped":  {mapping("ssh://%2doProxyCommand=sh/x"), "it is no URL"},
		"option as host, like scp": {mapping("-oProxyCommand=sh:x"), "begins with a dash"},
		"path":                     {mapping("/etc"), "it is a path"},
		"path, relative":           {mapping("sub.git"), "it is a path"},
		"path of Windows":          {mapping(`C:/repo`), "it is a path"},
		"backslash":                {mapping(`..\sub.git`), "a backslash"},
		"dots alone":               {mapping(".."), "it is a path"},
		"above the host":           {mapping("../../sub.git"), "above the host"},
		"far above the host":       {mapping(strings.Repeat("../", 1000)), "above the host"},
		"host by dots":             {mapping("../..//evil.example.com/x"), "above the host"},
		"line break":               {mapping("https://127.0.0.1/\nhost=evil/x"), "a control character"},
		"escaped line break":       {mapping("https://127.0.0.1/%0ahost=evil/x"), "a control character"},
		"escaped line break, ../":  {mapping("../sub.git%0a"), "a control character"},
		"password":                 {mapping("https://user:s3cret-canary@127.0.0.1/x"), "it holds a password|spec.submoduleCredentials"},
		"password over ssh":        {mapping("ssh://user:s3cret-canary@127.0.0.1/x"), "it holds a password"},
		"password like scp":        {mapping("user:s3cret-canary@127.0.0.1:x"), "as if it were a password"},
		"query":                    {mapping(good + "?x=1"), "a query"},
		"empty query":              {mapping(good + "?"), "a query"},
		"query, relative":          {mapping("../sub.git?x=1"), "a query"},
		"fragment":                 {mapping(good + "#x"), "fragment"},
		"no host":                  {mapping("https:///x"), "no host"},
		"no repository":            {mapping(server.URL + "/"), "names no repository"},
		"no repository, dots":      {mapping(server.URL + "/x/.."), "names no repository"},
		"bad escape":               {mapping("../%zz"), "it is no URL"},
		"long url":                 {mapping(good + strings.Repeat("x", 1<<19)), `url of "s": it has more than 4096 bytes`},
		"long url, relative":       {mapping("../" + strings.Repeat("x", 1<<19)), "it has more than 4096 bytes"},
		"two long names":           {"[submodule \"" + long + "s\"]\npath = s\n[submodule \"" + long + "t\"]\npath = s\n", "have the same path"},
		"bad port":                 {mapping("https://127.0.0.1:x/y"), "it is no URL"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := files("own", "1")
			if row.text != "" {
				tree = files("own", "1", ".gitmodules", row.text)
			}
			tree["s"] = testenv.Gitlink(pin)
			app.Commit(testenv.Commit{Branch: "main", Files: tree})
			server.Reset()
			_, _, _, err := try(t.Context(), recursiveObject(server.URL+"/app.git"), env)
			wantRecoverableError(t, err, gitFailed, row.say)
			if err != nil && (strings.Contains(err.Error(), "canary") || !strings.HasPrefix(err.Error(), `submodule "s": `)) {
				t.Errorf("%v: shows a secret, or does not name the submodule", err)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("a message of %d bytes: %.200s", len(err.Error()), err)
			}
			testenv.Equal(t, fetches(server)["/sub.git"], 0, "fetches of the submodule")
		})
	}
}

// .gitmodules must be a regular file of a bounded size.
func TestModulesFile(t *testing.T) {
	app, server, pin := withSubmodule(t, map[string]string{"x": "1"})
	for name, row := range map[string]struct {
		at   string
		file *fstest.MapFile
		say  string
	}{
		"link":      {".gitmodules", &fstest.MapFile{Data: []byte("other"), Mode: fs.ModeSymlink}, ".gitmodules: it is no regular file"},
		"huge":      {".gitmodules", &fstest.MapFile{Data: make([]byte, 1<<20+1)}, "more than the limit of 1048576"},
		"module":    {".gitmodules", testenv.Gitlink(pin), `".gitmodules"`},
		"directory": {".gitmodules/x", &fstest.MapFile{Data: []byte(mapping("../sub.git"))}, ".gitmodules"},
	} {
		tree := files("other", mapping("../sub.git"))
		tree["s"], tree[row.at] = testenv.Gitlink(pin), row.file
		app.Commit(testenv.Commit{Branch: "main", Files: tree})
		t.Log(name)
		t.Log(name)
		wantRecoverableFetchError(t, recursiveObject(server.URL+"/app.git"), source.Env{}, gitFailed, row.say)
	}
}

// A gitlink may name any object.
func TestGitlinksThatLeadToNoCommit(t *testing.T) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	commitFiles(sub, map[string]string{"x": "1"})
	server := testenv.ServeRepos(t, testenv.GitConfig{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	for name, pin := range map[string]string{
		"absent": strings.Repeat("1", 40), "tree": sub.Tree(files("x", "1")), "blob": sub.Object("blob", []byte("1")), "tag": sub.AnnotatedTag("v1", sub.ID("main"), "tag"),
	} {
		commitFiles(app, nil, submodule{"s", "../sub.git", pin})
		t.Log(name)
		t.Log(name)
		wantRecoverableFetchError(t, recursiveObject(server.URL+"/app.git"), source.Env{}, gitFailed, `submodule "s" at `+server.URL+"/sub.git|"+pin)
	}
}

// chain returns n+1 repositories; each is a submodule of the one before.
func chain(t *testing.T, n int) map[string]*testenv.Repo {
	repos := map[string]*testenv.Repo{}
	last := []submodule(nil)
	for i := n; i >= 0; i-- {
		repo, name := testenv.NewRepo(t), fmt.Sprintf("r%d.git", i)
		last = []submodule{{"s", "../" + name, commitFiles(repo, map[string]string{"x": "1"}, last...)}}
		repos[name] = repo
	}
	return repos
}

func TestSubmoduleDepth(t *testing.T) {
	server := testenv.ServeRepos(t, testenv.GitConfig{}, chain(t, 11))
	_, archive, _ := fetch(t, recursiveObject(server.URL+"/r1.git"), source.Env{})
	testenv.Equal(t, len(contents(t, archive)), 11, "content")
	wantRecoverableFetchError(t, recursiveObject(server.URL+"/r0.git"), source.Env{}, gitFailed, `submodule "s/s/s/s/s/s/s/s/s/s/s": s/|.gitmodules: the submodule is more than 10 deep`)
}

func TestSubmodulePath(t *testing.T) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	long := strings.Repeat("x", 3000)
	pin := commitFiles(sub, nil, submodule{long, "../sub", commitFiles(sub, map[string]string{"x": "1"})})
	commitFiles(app, nil, submodule{long, "../sub", pin})
	const at = "https://example.com"
	wantRecoverableFetchError(t, recursiveObject(at+"/app"), source.Env{Local: map[string]string{at + "/app": app.Dir, at + "/sub": sub.Dir}}, gitFailed, "the path has more than 4096 bytes")
}

func TestSubmoduleCount(t *testing.T) {
	app, server, pin := withSubmodule(t, map[string]string{"x": "1"})
	var links []submodule
	for i := range 1001 {
		links = append(links, submodule{fmt.Sprintf("d/%04d", i), "../sub.git", pin})
	}
	commitFiles(app, nil, links...)
	wantRecoverableFetchError(t, recursiveObject(server.URL+"/app.git"), source.Env{}, gitFailed, `submodule "d/1000": .gitmodules: there are more than 1000 submodules`)
	skipped := slices.Clone(links) // each leaves a note
	for i := range skipped {
		skipped[i].url += "\n\tupdate = none"
	}
	commitFiles(app, nil, skipped...)
	wantRecoverableFetchError(t, recursiveObject(server.URL+"/app.git"), source.Env{}, gitFailed, `submodule "d/1000": .gitmodules: there are more than 1000 submodules`)
	testenv.Equal(t, fetches(server)["/sub.git"], 0, "fetches")
	commitFiles(app, nil, links[1:]...)
	if _, archive, _ := fetch(t, recursiveObject(server.URL+"/app.git"), source.Env{}); len(contents(t, archive)) != 1000 {
		t.Errorf("content %v", contents(t, archive))
	}
}

// The limits apply to the trees of all submodules together, and to objects that a
// server sends although no tree holds them.
func TestSubmoduleLimits(t *testing.T) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	big := strings.Repeat("0123456789abcdef", 1<<10)
	pin := commitFiles(sub, map[string]string{"a": big + "a", "b": big + "b", "c/d": big})
	commitFiles(app, map[string]string{"x": "1"}, submodule{"s", "../sub.git", pin}, submodule{"t", "../sub.git", pin})
	server := testenv.ServeRepos(t, testenv.GitConfig{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	for name, row := range map[string]struct {
		limits artifact.Limits
		say    string
	}{
		"entries":       {artifact.Limits{Entries: 11}, "with it, the tree holds 12 entries: more than the limit of 11"},
		"bytes":         {artifact.Limits{Bytes: 90 << 10}, "with it, the tree holds|more than the limit of 92160"},
		"bytes of one":  {artifact.Limits{Bytes: 40 << 10}, "40"},
		"bytes of file": {artifact.Limits{FileBytes: 10 << 10}, "10240"},
	} {
		t.Log(name)
		t.Log(name)
		wantRecoverableFetchError(t, recursiveObject(server.URL+"/app.git"), source.Env{Limits: row.limits}, gitFailed, `submodule "s"|limit|`+row.say)
	}
	for _, limits := range []artifact.Limits{{Entries: 12, Bytes: 110 << 10}, {Entries: -1, Bytes: -1, FileBytes: -1}} {
		fetch(t, recursiveObject(server.URL+"/app.git"), source.Env{Limits: limits})
	}
	// A partial fetch does not know the files of the repository itself in advance.
	g := recursiveObject(server.URL + "/app.git")
	g.Spec.SparseCheckout = []string{"s", "t"}
	wantRecoverableFetchError(t, g, source.Env{Limits: artifact.Limits{Bytes: 90 << 10}}, gitFailed, "limit of 92160")
}

// urlWithHost returns the URL of a server with another host name.
func urlWithHost(s *testenv.GitServer, host string) string {
	u, _ := url.Parse(s.URL)
	return u.Scheme + "://" + host + ":" + u.Port()
}

// hrefsAt returns an edit that moves the download links of objects to another server.
func hrefsAt(base string) func(*testenv.LFSAnswer) {
	return func(a *testenv.LFSAnswer) {
		action := a.Actions["download"]
		u, _ := url.Parse(action.Href)
		action.Href = base + u.Path
		a.Actions["download"] = action
	}
}

// A repository at a public address cannot lead to a narrower network, by a redirect,
// a submodule, a redirect of a submodule, an LFS link or a redirect of one, unless
// the user allows the host.
func TestZones(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	testenv.Resolve(t, "other.example", "203.0.113.8")
	names := []string{"redirect", "submodule", "redirect of a submodule", "link of LFS", "redirect of LFS"}
	for i, n := range testenv.PrivateHosts(t) { // two hosts for each way, and all metadata hosts; package transport tests all
		if i >= 2*len(names) && !n.Metadata {
			continue
		}
		objects := new(testenv.LFS)
		app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
		pin := commitFiles(sub, map[string]string{"x": "1"})
		served := map[string]*testenv.Repo{"app.git": app, "sub.git": sub, "repo.git": app}
		target := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects}, served)
		other := testenv.ServeRepos(t, testenv.GitConfig{}, served)
		inside := urlWithHost(target, n.Host)
		name := names[i%len(names)]
		lead := map[string]func(*testenv.GitServer){
			"redirect":  func(s *testenv.GitServer) { s.Break(testenv.Redirect(inside)) },
			"submodule": func(*testenv.GitServer) { commitFiles(app, nil, submodule{"s", inside + "/sub.git", pin}) },
			"redirect of a submodule": func(*testenv.GitServer) {
				other.Break(testenv.Redirect(inside))
				commitFiles(app, nil, submodule{"s", urlWithHost(other, "other.example") + "/sub.git", pin})
			},
			"link of LFS": func(*testenv.GitServer) { objects.Edit = hrefsAt(inside) },
			"redirect of LFS": func(s *testenv.GitServer) {
				objects.Edit = hrefsAt(urlWithHost(s, "wide.example"))
				d := testenv.Redirect(inside)
				d.Phase = testenv.LFSObject
				s.Break(d)
			},
		}[name]
		app.Commit(testenv.Commit{Branch: "main", Files: files(".gitattributes", "*.bin filter=lfs\n", "a.bin", objects.Add("content"))})
		server := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects}, served)
		lead(server)
		g := recursiveObject(urlWithHost(server, "wide.example") + "/app.git")
		g.Spec.LFS = strings.Contains(name, "LFS")
		target.Reset()
		_, _, _, err := try(t.Context(), g, source.Env{})
		var refused *transport.ZoneError
		if !errors.As(err, &refused) || refused.Metadata != n.Metadata || strings.Contains(err.Error(), "--allow-network") == n.Metadata {
			t.Errorf("%s to %s: %v", name, n.Host, err)
		}
		if requests := target.Requests(); len(requests) > 0 {
			t.Errorf("%s to %s: %d requests", name, n.Host, len(requests))
		}
		if n.Metadata {
			continue
		}
		networks, err := source.ParseNetworks(n.Host)
		must(t, err)
		if _, _, _, err := try(t.Context(), g, source.Env{Networks: networks}); err != nil || len(target.Requests()) == 0 {
			t.Errorf("%s to %s, which the user opens: %v", name, n.Host, err)
		}
	}
}

// A public repository can have submodules on a private server only with an entry in
// spec.submoduleCredentials; repositories on that server need none. The redirects of
// a submodule are checked relative to its own network.
func TestSubmoduleInPrivateNetwork(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	testenv.Resolve(t, "forge.example", "10.0.0.7")
	testenv.Resolve(t, "near.example", "10.0.0.8")
	app, sub, deep := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	server := testenv.ServeRepos(t, testenv.GitConfig{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub, "deep.git": deep})
	forge := urlWithHost(server, "forge.example")
	commitFiles(sub, nil, submodule{"d", urlWithHost(server, "near.example") + "/deep.git", commitFiles(deep, map[string]string{"x": "1"})})
	commitFiles(app, nil, submodule{"s", forge + "/sub.git", commitFiles(sub, nil, submodule{"d", urlWithHost(server, "near.example") + "/deep.git", commitFiles(deep, map[string]string{"x": "1"})})})
	env := source.Env{Secrets: sourcetest.Secrets{"default/any": sourcetest.Secret("username", "u", "password", "p4ss-canary")}}
	g := recursiveObject(urlWithHost(server, "wide.example") + "/app.git")
	wantRecoverableFetchError(t, g, env, gitFailed, `submodule "s" at `+forge+"/sub.git|an address of a private network|--allow-network forge.example, or add an entry to spec.submoduleCredentials, with url "+forge)
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: forge, SecretRef: source.LocalReference{Name: "any"}}}
	if _, archive, _ := fetch(t, g, env); contents(t, archive)["s/d/x"] != "1" {
		t.Error("with an entry the submodules are not there")
	}
	if _, archive, _ := fetch(t, recursiveObject(forge+"/app.git"), env); contents(t, archive)["s/d/x"] != "1" {
		t.Error("in one network the submodules are not there")
	}
}
