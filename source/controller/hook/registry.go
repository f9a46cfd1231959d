package hook

import (
	"encoding/base64"
	"strings"
)

// readers know payloads that no header tells apart, by their shape.
var readers = []func(c *call, payload []byte) bool{
	readDistribution, readDockerHub, readQuay, readHarbor, readACR, readGoogle, readAzureDevOps,
}

// readAny reads the payload of whoever it is from.
func readAny(c *call, payload []byte) {
	for _, read := range readers {
		if read(c, payload) {
			return
		}
	}
}

// readDistribution reads the notifications of the registry distribution.
func readDistribution(c *call, payload []byte) bool {
	p := parse[struct {
		Events []struct {
			Action string `json:"action"`
			Target struct {
				MediaType  string `json:"mediaType"`
				Repository string `json:"repository"`
				Tag        string `json:"tag"`
			} `json:"target"`
		} `json:"events"`
	}](payload)
	var images []image
	for _, e := range p.Events {
		if e.Action == "" || e.Target.Repository == "" {
			return false
		}
		images = append(images, image{
			repository: e.Target.Repository, tag: e.Target.Tag, deleted: e.Action == "delete",
			idle: e.Action == "pull" || e.Action == "mount" || e.Target.MediaType == "application/octet-stream",
		})
	}
	if len(p.Events) == 0 {
		return false
	}
	c.provider, c.images = "distribution", images
	return true
}

func readDockerHub(c *call, payload []byte) bool {
	p := parse[struct {
		PushData *struct {
			Tag string `json:"tag"`
		} `json:"push_data"`
		Repository struct {
			RepoName string `json:"repo_name"`
		} `json:"repository"`
	}](payload)
	if p.PushData == nil {
		return false
	}
	c.provider, c.images = "dockerhub", []image{{repository: p.Repository.RepoName, tag: p.PushData.Tag}}
	return true
}

func readQuay(c *call, payload []byte) bool {
	p := parse[struct {
		DockerURL   string   `json:"docker_url"`
		Repository  string   `json:"repository"`
		UpdatedTags []string `json:"updated_tags"`
	}](payload)
	if p.DockerURL == "" {
		return false
	}
	c.provider = "quay"
	for _, tag := range p.UpdatedTags {
		c.images = append(c.images, image{repository: p.Repository, tag: tag})
	}
	return true
}

// A harborEvent is what Harbor says of artifacts, in either of its formats.
type harborEvent struct {
	Resources []struct {
		Tag string `json:"tag"`
	} `json:"resources"`
	Repository struct {
		FullName string `json:"repo_full_name"`
	} `json:"repository"`
}

// harborEvents are those of artifacts in both formats, and what they say of each.
var harborEvents = map[string]image{
	"push_artifact": {}, "artifact.pushed": {},
	"delete_artifact": {deleted: true}, "artifact.deleted": {deleted: true},
	"pull_artifact": {idle: true}, "artifact.pulled": {idle: true},
	"scanning_completed": {idle: true}, "scan.completed": {idle: true},
	"scanning_failed": {idle: true}, "scan.failed": {idle: true},
	"scanning_stopped": {idle: true}, "scan.stopped": {idle: true},
}

func readHarbor(c *call, payload []byte) bool {
	p := parse[struct {
		Type      string      `json:"type"`
		EventData harborEvent `json:"event_data"`
		Data      harborEvent `json:"data"` // of CloudEvents
	}](payload)
	event, data := strings.ToLower(p.Type), p.EventData
	if rest, found := strings.CutPrefix(event, "harbor."); found {
		event, data = rest, p.Data
	} else if data.Repository.FullName == "" {
		return false
	}
	c.provider, c.event = "harbor", event
	if template, found := harborEvents[event]; found {
		for _, r := range data.Resources {
			template.repository, template.tag = data.Repository.FullName, r.Tag
			c.images = append(c.images, template)
		}
	}
	return true
}

// readACR reads the notifications of Azure's registry.
func readACR(c *call, payload []byte) bool {
	p := parse[struct {
		Action string `json:"action"`
		ID     string `json:"id"`
		Target struct {
			Repository string `json:"repository"`
			Tag        string `json:"tag"`
		} `json:"target"`
	}](payload)
	switch p.Action {
	case "ping":
		if p.ID == "" {
			return false
		}
		c.ping = true
	case "push", "chart_push":
		c.images = []image{{repository: p.Target.Repository, tag: p.Target.Tag}}
	case "delete", "chart_delete":
		c.images = []image{{repository: p.Target.Repository, tag: p.Target.Tag, deleted: true}}
	default:
		return false
	}
	if !c.ping && p.Target.Repository == "" {
		c.images = nil
		return false
	}
	c.provider, c.event = "acr", p.Action
	return true
}

// readGoogle reads the notifications of Google's registries, which come in messages of Pub/Sub.
func readGoogle(c *call, payload []byte) bool {
	p := parse[struct {
		Message struct {
			Data string `json:"data"`
		} `json:"message"`
		Subscription string `json:"subscription"`
	}](payload)
	data, err := base64.StdEncoding.DecodeString(p.Message.Data)
	if err != nil || p.Subscription == "" {
		return false
	}
	m := parse[struct{ Action, Digest, Tag string }](data)
	if m.Action != "INSERT" && m.Action != "DELETE" {
		return false
	}
	c.provider, c.event = "google", strings.ToLower(m.Action)
	name, _, _ := strings.Cut(m.Digest, "@")
	i := image{repository: name, deleted: m.Action == "DELETE"}
	if at := strings.LastIndexByte(m.Tag, ':'); at > strings.LastIndexByte(m.Tag, '/') {
		i.repository, i.tag = m.Tag[:at], m.Tag[at+1:]
	}
	c.images = []image{i}
	return true
}

// readGitHubPackage reads a push to GitHub's registry.
func readGitHubPackage(c *call, payload []byte) {
	type pkg struct {
		Name           string `json:"name"`
		PackageVersion struct {
			ContainerMetadata struct {
				Tag struct {
					Name string `json:"name"`
				} `json:"tag"`
			} `json:"container_metadata"`
		} `json:"package_version"`
	}
	p := parse[struct {
		Package         pkg `json:"package"`
		RegistryPackage pkg `json:"registry_package"`
	}](payload)
	for _, pkg := range []pkg{p.Package, p.RegistryPackage} {
		if pkg.Name != "" {
			c.images = append(c.images, image{repository: pkg.Name, tag: pkg.PackageVersion.ContainerMetadata.Tag.Name})
		}
	}
}

// readNexus reads what became of a component of a Nexus repository.
func readNexus(c *call, payload []byte) {
	p := parse[struct {
		Action    string `json:"action"`
		Component struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"component"`
	}](payload)
	if p.Component.Name != "" {
		c.images = []image{{repository: p.Component.Name, tag: p.Component.Version, deleted: p.Action == "DELETED"}}
	}
}
