package hook_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

const followers = `
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: main}, spec: {url: "https://h/o/app", interval: 1h, ref: {branch: main}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: none}, spec: {url: "https://h/o/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: tag}, spec: {url: "https://h/o/app", interval: 1h, ref: {tag: v1}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: range}, spec: {url: "https://h/o/app", interval: 1h, ref: {semver: ">=1"}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: ref}, spec: {url: "https://h/o/app", interval: 1h, ref: {name: refs/pull/7/head}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: several}, spec: {url: "https://h/o/app", interval: 1h, ref: {branch: main, tag: v1}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: commit}, spec: {url: "https://h/o/app", interval: 1h, ref: {commit: "9a3fdba4cf0ad4c2dbb1ffa1ac5f6bfa7ba36ed0"}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: OCIRepository, metadata: {name: app}, spec: {url: "oci://registry.example.org/mirror/team/app", interval: 1h, ref: {tag: "1.0"}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: OCIRepository, metadata: {name: latest}, spec: {url: "oci://registry.example.org/team/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: OCIRepository, metadata: {name: range}, spec: {url: "oci://registry.example.org/team/app", interval: 1h, ref: {semver: ">=1"}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {name: app}, spec: {url: "https://h/o", interval: 1h}}
`

const (
	someHash = "9a3fdba4cf0ad4c2dbb1ffa1ac5f6bfa7ba36ed0"
	noHash   = "0000000000000000000000000000000000000000"
)

// gitPush is a push as GitHub, Gitea and their kin send it.
func gitPush(ref, after string) string {
	return fmt.Sprintf(`{"ref":"%s","before":%q,"after":%q,"created":false,"deleted":%v,"forced":false,"commits":[{"id":"x","message":"m"}],"repository":{"id":1,"full_name":"o/app","clone_url":"https://h/o/app.git"},"sender":{"login":"alice"}}`,
		ref, someHash, after, after == noHash)
}

func gitLabPush(kind, ref, after string) string {
	return fmt.Sprintf(`{"object_kind":%q,"event_name":%q,"before":%q,"after":%q,"ref":%q,"checkout_sha":%q,"project":{"path_with_namespace":"o/app"},"commits":[],"total_commits_count":0}`, kind, kind, someHash, after, ref, after)
}

func bitbucketCloud(old, next string) string {
	return fmt.Sprintf(`{"push":{"changes":[{"old":%s,"new":%s,"created":false,"closed":false,"truncated":false,"commits":[]}]},"repository":{"full_name":"o/app"},"actor":{}}`, old, next)
}

func bitbucketServer(ref, kind string) string {
	return fmt.Sprintf(`{"eventKey":"repo:refs_changed","date":"2026-01-02T03:04:05+0000","repository":{"slug":"app","project":{"key":"O"}},"changes":[{"ref":{"id":%q,"displayId":"x","type":"BRANCH"},"refId":%q,"fromHash":"a","toHash":"b","type":%q}]}`, ref, ref, kind)
}

func distribution(action, mediaType, repository, tag string) string {
	return fmt.Sprintf(`{"events":[{"id":"1","timestamp":"2026-01-02T03:04:05Z","action":%q,"target":{"mediaType":%q,"size":1,"digest":"sha256:0","length":1,"repository":%q,"url":"http://h/v2/x/manifests/sha256:0","tag":%q},"request":{"id":"2","addr":"127.0.0.1","method":"PUT"},"source":{"addr":"h"}}]}`,
		action, mediaType, repository, tag)
}

const manifest = "application/vnd.oci.image.manifest.v1+json"

func harbor(kind, tag string) string {
	return fmt.Sprintf(`{"type":%q,"occur_at":1,"operator":"admin","event_data":{"resources":[{"digest":"sha256:0","tag":%q,"resource_url":"h/team/app:1"}],"repository":{"date_created":1,"name":"app","namespace":"team","repo_full_name":"team/app","repo_type":"private"}}}`, kind, tag)
}

func harborCloudEvent(kind, tag string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"/projects/1/webhook/policies/1","type":%q,"datacontenttype":"application/json","data":{"resources":[{"digest":"sha256:0","tag":%q}],"repository":{"name":"app","namespace":"team","repo_full_name":"team/app"}},"operator":"admin"}`, kind, tag)
}

func google(action, tag string) string {
	data := fmt.Sprintf(`{"action":%q,"digest":"eu-docker.pkg.dev/p/team/app@sha256:0","tag":%q}`, action, tag)
	return fmt.Sprintf(`{"message":{"data":%q,"messageId":"1","publishTime":"2026-01-02T03:04:05Z"},"subscription":"projects/p/subscriptions/s"}`, base64.StdEncoding.EncodeToString([]byte(data)))
}

func githubPackage(key, name, tag string) string {
	return fmt.Sprintf(`{"action":"published",%q:{"id":1,"name":%q,"namespace":"o","ecosystem":"CONTAINER","package_version":{"id":1,"version":"sha256:0","container_metadata":{"tag":{"name":%q,"digest":"sha256:0"}}}}}`, key, name, tag)
}

func acr(action, repository, tag string) string {
	return fmt.Sprintf(`{"id":"1","timestamp":"2026-01-02T03:04:05Z","action":%q,"target":{"mediaType":%q,"repository":%q,"tag":%q},"request":{"id":"2","host":"x.azurecr.io"}}`, action, manifest, repository, tag)
}

func quay(repository string, tags ...string) string {
	return fmt.Sprintf(`{"name":"app","repository":%q,"namespace":"team","docker_url":"quay.io/team/app","homepage":"https://quay.io/repository/team/app","updated_tags":["%s"]}`, repository, strings.Join(tags, `","`))
}

func dockerHub(repository, tag string) string {
	return fmt.Sprintf(`{"callback_url":"https://h/","push_data":{"pushed_at":1,"pusher":"a","tag":%q,"images":[]},"repository":{"repo_name":%q,"repo_url":"https://hub.docker.com/r/x","status":"Active"}}`, tag, repository)
}

func azureDevOps(ref, after string) string {
	return fmt.Sprintf(`{"subscriptionId":"s","eventType":"git.push","publisherId":"tfs","resource":{"commits":[],"refUpdates":[{"name":%q,"oldObjectId":%q,"newObjectId":%q}],"repository":{"name":"app"}}}`, ref, someHash, after)
}

func nexus(action, name, version string) string {
	return fmt.Sprintf(`{"timestamp":"2026-01-02T03:04:05.000+0000","nodeId":"n","initiator":"admin/127.0.0.1","repositoryName":"docker","action":%q,"component":{"id":"1","componentId":"2","format":"docker","name":%q,"group":null,"version":%q}}`, action, name, version)
}

const run = "it is checked now"

// What each provider sends, what is made of it, and who it is taken for.
func TestPayloads(t *testing.T) {
	for _, test := range []struct{ object, provider, event, body, want string }{
		{"git/main", "github", "ping", `{"zen":"x","hook_id":1,"hook":{"events":["push"]}}`, "pong"},
		{"git/main", "github", "push", gitPush("refs/heads/main", someHash), run},
		{"git/main", "github", "push", gitPush("refs/heads/other", someHash), "ignored: it follows refs/heads/main, not refs/heads/other"},
		{"git/main", "github", "push", gitPush(`refs/heads/other\u001b[31m\ntok`, someHash), "ignored: it follows refs/heads/main, not refs/heads/other; tok"},
		{"git/main", "github", "push", gitPush("refs/tags/main", someHash), "ignored: it follows refs/heads/main, not refs/tags/main"},
		{"git/main", "github", "push", gitPush("refs/heads/main", noHash), "ignored: refs/heads/main was deleted"},
		{"git/main", "github", "push", `{"ref":5}`, run},
		{"git/main", "github", "push", `{"ref":"main"}`, run},
		{"git/main", "github", "push", `not JSON`, run},
		{"git/main", "github", "create", `{"ref":"main","ref_type":"branch"}`, run},
		{"git/main", "github", "create", `{"ref":"v1","ref_type":"tag"}`, "ignored: it follows refs/heads/main, not refs/tags/v1"},
		{"git/main", "github", "delete", `{"ref":"main","ref_type":"branch"}`, "ignored: refs/heads/main was deleted"},
		{"git/main", "github", "pull_request", `{"action":"closed"}`, run},
		{"git/main", "github", "star", `{"action":"created"}`, "ignored: the event star changes no content"},
		{"git/main", "github", "gollum", `{"pages":[]}`, run}, // of a wiki, which is a repository
		{"git/main", "gitea", "wiki", `{"action":"edited"}`, run},
		{"git/main", "gitlab", "Wiki Page Hook", `{"object_kind":"wiki_page"}`, run},
		{"git/main", "github", "future_event", `{}`, run},
		{"git/none", "github", "push", gitPush("refs/heads/master", someHash), run},
		{"git/none", "github", "push", gitPush("refs/heads/main", someHash), "ignored: it follows refs/heads/master, not refs/heads/main"},
		{"git/tag", "github", "push", gitPush("refs/tags/v1", someHash), run},
		{"git/tag", "github", "push", gitPush("refs/tags/v2", someHash), "ignored: it follows refs/tags/v1, not refs/tags/v2"},
		{"git/range", "github", "push", gitPush("refs/tags/v2", someHash), run},
		{"git/range", "github", "push", gitPush("refs/tags/v2", noHash), run}, // another may be the highest now
		{"git/range", "github", "push", gitPush("refs/heads/main", someHash), "ignored: it follows refs/tags/, not refs/heads/main"},
		{"git/ref", "github", "push", gitPush("refs/heads/main", someHash), "ignored: it follows refs/pull/7/head, not refs/heads/main"},
		{"git/ref", "github", "pull_request", `{"action":"synchronize","number":7}`, run},
		{"git/several", "github", "push", gitPush("refs/heads/other", someHash), run},
		{"git/commit", "github", "push", gitPush("refs/heads/other", someHash), run},
		{"helmrepository/app", "github", "push", gitPush("refs/heads/gh-pages", someHash), run},
		{"oci/app", "github", "push", gitPush("refs/heads/main", someHash), run},
		{"oci/app", "github", "package", githubPackage("package", "app", "1.0"), run},
		{"oci/app", "github", "package", githubPackage("package", "app", "1.1"), "ignored: it follows the tag 1.0, not 1.1"},
		{"oci/app", "github", "registry_package", githubPackage("registry_package", "group/other", "1.0"), "ignored: it follows app, not group/other"},
		{"oci/app", "github", "package", githubPackage("package", "app", ""), run},

		{"git/main", "gitlab", "Push Hook", gitLabPush("push", "refs/heads/main", someHash), run},
		{"git/main", "gitlab", "Push Hook", gitLabPush("push", "refs/heads/other", someHash), "ignored: it follows refs/heads/main, not refs/heads/other"},
		{"git/main", "gitlab", "Push Hook", gitLabPush("push", "refs/heads/main", noHash), "ignored: refs/heads/main was deleted"},
		{"git/tag", "gitlab", "Tag Push Hook", gitLabPush("tag_push", "refs/tags/v1", someHash), run},
		{"git/tag", "gitlab", "Tag Push Hook", gitLabPush("tag_push", "refs/tags/v2", someHash), "ignored: it follows refs/tags/v1, not refs/tags/v2"},
		{"git/main", "gitlab", "System Hook", `{"event_name":"repository_update","changes":[{"before":"a","after":"b","ref":"refs/heads/x"},{"ref":"refs/heads/main","after":"c"}]}`, run},
		{"git/main", "gitlab", "System Hook", `{"event_name":"repository_update","changes":[{"before":"a","after":"b","ref":"refs/heads/x"}]}`, "ignored: it follows refs/heads/main, not refs/heads/x"},
		{"git/main", "gitlab", "System Hook", `{"event_name":"project_create"}`, run},
		{"git/main", "gitlab", "Note Hook", `{}`, "ignored: the event note-hook changes no content"},
		{"git/main", "gitlab", "Merge Request Hook", `{}`, run},

		{"git/main", "gitea", "push", gitPush("refs/heads/main", someHash), run},
		{"git/main", "forgejo", "push", gitPush("refs/heads/other", someHash), "ignored: it follows refs/heads/main, not refs/heads/other"},
		{"git/main", "gogs", "push", gitPush("refs/heads/main", noHash), "ignored: refs/heads/main was deleted"},
		{"git/main", "gitea", "issues", `{}`, "ignored: the event issues changes no content"},

		{"git/main", "bitbucket", "diagnostics:ping", `{"test":true}`, "pong"},
		{"git/main", "bitbucket", "repo:push", bitbucketCloud(`null`, `{"type":"branch","name":"main"}`), run},
		{"git/main", "bitbucket", "repo:push", bitbucketCloud(`{"type":"branch","name":"x"}`, `{"type":"branch","name":"x"}`), "ignored: it follows refs/heads/main, not refs/heads/x"},
		{"git/main", "bitbucket", "repo:push", bitbucketCloud(`{"type":"branch","name":"main"}`, `null`), "ignored: refs/heads/main was deleted"},
		{"git/main", "bitbucket", "repo:push", bitbucketCloud(`null`, `{"type":"named_branch","name":"x"}`), run},
		{"git/main", "bitbucket", "repo:push", bitbucketCloud(`null`, `null`), run},
		{"git/tag", "bitbucket", "repo:push", bitbucketCloud(`null`, `{"type":"tag","name":"v1"}`), run},
		{"git/main", "bitbucket", "repo:refs_changed", bitbucketServer("refs/heads/main", "UPDATE"), run},
		{"git/main", "bitbucket", "repo:refs_changed", bitbucketServer("refs/heads/x", "ADD"), "ignored: it follows refs/heads/main, not refs/heads/x"},
		{"git/main", "bitbucket", "repo:refs_changed", bitbucketServer("refs/heads/main", "DELETE"), "ignored: refs/heads/main was deleted"},
		{"git/main", "bitbucket", "pr:comment:added", `{}`, "ignored: the event pr:comment:added changes no content"},

		{"git/main", "azure-devops", "", azureDevOps("refs/heads/main", someHash), run},
		{"git/main", "azure-devops", "", azureDevOps("refs/heads/x", someHash), "ignored: it follows refs/heads/main, not refs/heads/x"},
		{"git/main", "azure-devops", "", `{"eventType":"git.pullrequest.merged","resource":{}}`, run},

		{"oci/app", "distribution", "", distribution("push", manifest, "team/app", "1.0"), run},
		{"oci/app", "distribution", "", distribution("push", manifest, "team/app", "1.1"), "ignored: it follows the tag 1.0, not 1.1"},
		{"oci/app", "distribution", "", distribution("push", manifest, "other/app", "1.0"), run}, // a mirror may name it otherwise
		{"oci/app", "distribution", "", distribution("push", manifest, "team/web", "1.0"), "ignored: it follows app, not team/web"},
		{"oci/app", "generic", "", `{"events":[{"action":"push","target":{"repository":"team/web"}},{"action":"push","target":{}}]}`, run}, // one is not known
		{"oci/app", "distribution", "", distribution("push", manifest, "team/app", ""), run},                                               // may be a signature
		{"oci/app", "distribution", "", distribution("push", manifest, "team/app", "sha256-0.sig"), run},
		{"oci/app", "distribution", "", distribution("push", "application/octet-stream", "team/app", ""), "ignored: no manifest was pushed"},
		{"oci/app", "distribution", "", distribution("pull", manifest, "team/app", "1.0"), "ignored: no manifest was pushed"},
		{"oci/app", "distribution", "", distribution("delete", manifest, "team/app", "1.0"), "ignored: team/app:1.0 was deleted"},
		{"oci/app", "distribution", "", strings.TrimSuffix(distribution("pull", manifest, "team/app", "1.0"), "]}") + "," + strings.TrimPrefix(distribution("push", manifest, "team/app", "1.0"), `{"events":[`), run},
		{"oci/latest", "distribution", "", distribution("push", manifest, "team/app", "latest"), run},
		{"oci/latest", "distribution", "", distribution("push", manifest, "team/app", "1.0"), "ignored: it follows the tag latest, not 1.0"},
		{"oci/range", "distribution", "", distribution("push", manifest, "team/app", "1.7"), run},
		{"oci/range", "distribution", "", distribution("delete", manifest, "team/app", "1.7"), run}, // another may be the highest now
		{"oci/app", "generic", "", `{"events":[]}`, run},

		{"oci/app", "dockerhub", "", dockerHub("team/app", "1.0"), run},
		{"oci/app", "dockerhub", "", dockerHub("team/app", "dev"), "ignored: it follows the tag 1.0, not dev"},
		{"oci/app", "quay", "", quay("team/app", "dev", "1.0"), run},
		{"oci/app", "quay", "", quay("team/app", "dev"), "ignored: it follows the tag 1.0, not dev"},
		{"oci/app", "quay", "", quay("team/web", "1.0"), "ignored: it follows app, not team/web"},
		{"oci/app", "harbor", "", harbor("PUSH_ARTIFACT", "1.0"), run},
		{"oci/app", "harbor", "", harbor("PUSH_ARTIFACT", "dev"), "ignored: it follows the tag 1.0, not dev"},
		{"oci/app", "harbor", "", harbor("PULL_ARTIFACT", "1.0"), "ignored: no manifest was pushed"},
		{"oci/app", "harbor", "", harbor("DELETE_ARTIFACT", "1.0"), "ignored: team/app:1.0 was deleted"},
		{"oci/app", "harbor", "", harbor("REPLICATION", "dev"), run},
		{"oci/app", "harbor", "", harborCloudEvent("harbor.artifact.pushed", "1.0"), run},
		{"oci/app", "harbor", "", harborCloudEvent("harbor.scan.completed", "1.0"), "ignored: no manifest was pushed"},
		{"oci/app", "acr", "", acr("push", "team/app", "1.0"), run},
		{"oci/app", "acr", "", acr("chart_push", "team/web", "1.0"), "ignored: it follows app, not team/web"},
		{"oci/app", "acr", "", acr("delete", "team/app", ""), "ignored: team/app was deleted"},
		{"oci/app", "acr", "", `{"id":"1","timestamp":"2026-01-02T03:04:05Z","action":"ping"}`, "pong"},
		{"oci/app", "google", "", google("INSERT", "eu-docker.pkg.dev/p/team/app:1.0"), run},
		{"oci/app", "google", "", google("INSERT", "eu-docker.pkg.dev/p/team/app:dev"), "ignored: it follows the tag 1.0, not dev"},
		{"oci/app", "google", "", google("INSERT", ""), run},
		{"oci/app", "google", "", google("DELETE", "eu-docker.pkg.dev/p/team/app:1.0"), "ignored: eu-docker.pkg.dev/p/team/app:1.0 was deleted"},
		{"oci/app", "nexus", "rm:repository:component", nexus("CREATED", "team/app", "1.0"), run},
		{"oci/app", "nexus", "rm:repository:component", nexus("UPDATED", "team/app", "dev"), "ignored: it follows the tag 1.0, not dev"},
		{"oci/app", "nexus", "rm:repository:component", nexus("DELETED", "team/app", "1.0"), "ignored: team/app:1.0 was deleted"},
		{"helmrepository/app", "nexus", "rm:repository:component", nexus("DELETED", "team/app", "1.0"), run},

		{"git/main", "generic", "", `{"anything":1}`, run},
		{"git/main", "generic", "", ``, run},
		{"git/main", "generic", "", strings.Repeat("[", 20000), run},
	} {
		d := newDesk(followers)
		d.open = true
		_, reason, runs := d.post(t, "/hook/"+test.object, test.body, eventHeader(test.provider, test.event))
		if out := d.outcomes[0]; reason != test.want || out.Provider != test.provider || (runs == 1) != (test.want == run) {
			t.Errorf("%s: %s %s %.80s: %s (%d runs, taken for %s), want %s", test.object, test.provider, test.event, test.body, reason, runs, out.Provider, test.want)
		}
	}
}

// eventHeader returns the headers by which a provider names itself and an event.
func eventHeader(provider, event string) map[string]string {
	names := map[string][]string{
		"github": {"X-GitHub-Event"}, "gitlab": {"X-Gitlab-Event"}, "gogs": {"X-Gogs-Event", "X-GitHub-Event"}, "gitea": {"X-Gitea-Event", "X-Gogs-Event", "X-GitHub-Event"},
		"forgejo": {"X-Forgejo-Event", "X-Gitea-Event", "X-Gogs-Event", "X-GitHub-Event"}, "bitbucket": {"X-Event-Key"}, "nexus": {"X-Nexus-Webhook-Id"},
	}
	header := map[string]string{"Content-Type": "application/json"}
	for _, name := range names[provider] {
		header[name] = event
	}
	return header
}

// A payload may be a field of a form, and its type may be wrong.
func TestForms(t *testing.T) {
	d := newDesk(followers)
	d.open = true
	form := url.Values{"payload": {gitPush("refs/heads/x", someHash)}}.Encode()
	for _, contentType := range []string{"application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=utf-8", "application/json", ""} {
		header := map[string]string{"X-GitHub-Event": "push", "Content-Type": contentType}
		if _, reason, _ := d.post(t, "/hook/git/main", form, header); !strings.HasPrefix(reason, "ignored") {
			t.Errorf("%q: %s", contentType, reason)
		}
		if _, reason, _ := d.post(t, "/hook/git/main", "payload=%zz", header); reason != run {
			t.Errorf("%q: %s", contentType, reason)
		}
	}
	header := map[string]string{"X-GitHub-Event": "push", "Content-Type": "text/plain"}
	if _, reason, _ := d.post(t, "/hook/git/main", gitPush("refs/heads/x", someHash), header); !strings.HasPrefix(reason, "ignored") {
		t.Errorf("a wrong type: %s", reason)
	}
}
