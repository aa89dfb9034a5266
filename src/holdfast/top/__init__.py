"""Operations at a glance in a terminal: `holdfast top`. Needs the extra `top`; all it knows comes from a Desk."""
