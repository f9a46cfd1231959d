package signature

// sshAlgorithms says which signatures an SSH key of a type may make.
var sshAlgorithms = map[string][]string{
	"ssh-ed25519":                        {"ssh-ed25519"},
	"ecdsa-sha2-nistp256":                {"ecdsa-sha2-nistp256"},
	"ecdsa-sha2-nistp384":                {"ecdsa-sha2-nistp384"},
	"ecdsa-sha2-nistp521":                {"ecdsa-sha2-nistp521"},
	"ssh-rsa":                            {"rsa-sha2-256", "rsa-sha2-512"},
	"sk-ssh-ed25519@openssh.com":         {"sk-ssh-ed25519@openssh.com"},
	"sk-ecdsa-sha2-nistp256@openssh.com": {"sk-ecdsa-sha2-nistp256@openssh.com"},
}
