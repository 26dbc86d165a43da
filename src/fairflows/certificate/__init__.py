"""What a release tells about the group: certificates, how they are made, and how they are checked."""
