package hook

import "strings"

// gone reports whether a hash of commits is that of none.
func gone(hash string) bool { return hash != "" && strings.Trim(hash, "0") == "" }

// push is the payload of a push, and of the creation and deletion of a reference.
type push struct {
	Ref     string `json:"ref"`
	RefType string `json:"ref_type"` // of create and delete, whose ref is short
	After   string `json:"after"`
	Deleted bool   `json:"deleted"`
	Name    string `json:"event_name"` // of GitLab's system hooks
	Changes []struct {
		Ref   string `json:"ref"`
		After string `json:"after"`
	} `json:"changes"`
}

// prefixes are those of references by their type.
var prefixes = map[string]string{"branch": "refs/heads/", "tag": "refs/tags/"}

// readPush reads a push as GitHub, Gitea, Forgejo and Gogs send it.
func readPush(c *call, payload []byte) {
	p := parse[push](payload)
	switch {
	case p.Ref == "":
	case c.event == "push":
		c.refs = []change{{p.Ref, p.Deleted || gone(p.After)}}
	case c.event == "create", c.event == "delete":
		if prefix := prefixes[p.RefType]; prefix != "" {
			c.refs = []change{{prefix + strings.TrimPrefix(p.Ref, prefix), c.event == "delete"}}
		}
	}
}

// readGitHub reads pushes to repositories and to GitHub's registry.
func readGitHub(c *call, payload []byte) {
	if c.event == "package" || c.event == "registry_package" {
		readGitHubPackage(c, payload)
		return
	}
	readPush(c, payload)
}

// readGitLab reads pushes of branches and tags, and those of a whole server.
func readGitLab(c *call, payload []byte) {
	p := parse[push](payload)
	switch c.event {
	case "push-hook", "tag-push-hook":
	case "system-hook":
		if p.Name == "repository_update" {
			for _, change := range p.Changes {
				c.add(change.Ref, gone(change.After))
			}
			return
		}
		if p.Name != "push" && p.Name != "tag_push" {
			return
		}
	default:
		return
	}
	c.add(p.Ref, gone(p.After))
}

// add notes a change of a reference if its name is known.
func (c *call) add(ref string, deleted bool) {
	c.refs = append(c.refs, change{ref, deleted})
}

// bitbucket is the payload of a push, of the cloud and of the server.
type bitbucket struct {
	Push struct {
		Changes []struct {
			New, Old *struct{ Type, Name string }
		} `json:"changes"`
	} `json:"push"`
	Changes []struct {
		Ref struct {
			ID string `json:"id"`
		} `json:"ref"`
		Type string `json:"type"`
	} `json:"changes"`
}

func readBitbucket(c *call, payload []byte) {
	if c.event != "repo:push" && c.event != "repo:refs_changed" {
		return
	}
	p := parse[bitbucket](payload)
	for _, change := range p.Push.Changes {
		of := change.New
		if of == nil {
			of = change.Old
		}
		if of == nil || prefixes[of.Type] == "" {
			c.add("", false)
			continue
		}
		c.add(prefixes[of.Type]+of.Name, change.New == nil)
	}
	for _, change := range p.Changes {
		c.add(change.Ref.ID, change.Type == "DELETE")
	}
}

// azureDevOps is the payload of a push to Azure DevOps.
type azureDevOps struct {
	EventType string `json:"eventType"`
	Resource  struct {
		RefUpdates []struct {
			Name        string `json:"name"`
			NewObjectID string `json:"newObjectId"`
		} `json:"refUpdates"`
	} `json:"resource"`
}

func readAzureDevOps(c *call, payload []byte) bool {
	p := parse[azureDevOps](payload)
	if p.EventType == "" || !strings.HasPrefix(p.EventType, "git.") {
		return false
	}
	c.provider, c.event = "azure-devops", p.EventType
	if p.EventType == "git.push" {
		for _, update := range p.Resource.RefUpdates {
			c.add(update.Name, gone(update.NewObjectID))
		}
	}
	return true
}
