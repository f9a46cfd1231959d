package api

// Types are the types of tasks, as records have them.
func Types() []string {
	return []string{"cmd", "bash", "helm", "helmv3", "kubectl", "ngrinder", "concord", "k6"}
}

// TypeName returns the type of a task by the product's name or the neutral
// one, "" when there is none.
func TypeName(name string) string {
	switch name {
	case "cmd", "bash", "helm", "helmv3", "kubectl", "ngrinder", "concord", "k6":
		return name
	case "pkgtest":
		return "helm"
	case "pkgtest3":
		return "helmv3"
	case "delegated-load":
		return "ngrinder"
	case "workflow":
		return "concord"
	}
	return ""
}
