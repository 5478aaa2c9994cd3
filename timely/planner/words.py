# ruff: noqa: E501, SIM905 (tables of wordings: a line is a list)
"""The things that tasks are about. What the held-out test speaks of never occurs in training."""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "test"]

DRONE_OBJECTS: dict[Split, tuple[str, ...]] = {
    "train": tuple(
        """cat dog ball chair cup phone book lamp shoe bottle vase toy keys backpack plant guitar clock umbrella
        suitcase laptop mug hat teddy_bear sofa television bicycle box basket pillow blanket candle mirror printer radio
        speaker glasses wallet remote jacket sock pen bucket ladder broom helmet tent skateboard trophy football kite
        flower apple banana pizza sandwich notebook newspaper magazine calendar coffee_machine microwave toaster kettle fridge
        fan heater red_ball blue_box green_bag yellow_cup toolbox hammer drill flashlight bed table desk door
        plate bowl fork spoon towel soap toothbrush doll puzzle drum piano robot drone rabbit bird parrot goldfish
        hamster letter envelope stapler scarf gloves belt ring watch necklace key_ring water_bottle tennis_ball
        cardboard_box lunch_box photo_frame fire_extinguisher first_aid_kit coat rug curtain statue globe""".split()
    ),
    "test": tuple(
        """tablet monitor keyboard violin camera sunglasses handbag pumpkin teapot snowboard surfboard scooter
        turtle ferret tripod briefcase bookshelf cactus lantern whistle yellow_ball pink_bag wine_glass frying_pan
        baseball_bat alarm_clock headphones passport measuring_tape screwdriver purple_hat orange boots cushion
        goblet frisbee""".split()
    ),
}
"""Underscores stand for spaces."""

NOUNS: dict[Split, tuple[str, ...]] = {
    "train": tuple(
        """anchor antenna apron armband arrow axe badge bagel balloon bamboo bandage banner barrel basin bathtub bead beaker bean bell binder
biscuit blender bobbin bolt bonnet bookmark bouquet bracelet brick bridge broccoli_dish bubble_wrap buckle bulb bunny burger butter button
cabin cable cactus_pot cage cake camel candy canoe canvas cap_gun carton cartoon cassette castle catalogue cello ceramic_bowl chain chalk
charm cheese_cube chess_piece chimney chip chisel_box chocolate cigar clam clarinet clay clipboard clothes_peg clover coaster coconut coffee
collar comb compass computer cone cookie_jar copper_wire coral cork costume cotton_reel crab cracker cradle crane crayon_box cream crown crystal
cube cup_holder cymbal daisy dart detergent diary dinosaur dish doorbell doughnut dragon dress drone_box dryer duck dumbbell earring easel eel
egg_timer elephant engine eraser_box eyeglasses fabric faucet feather fence fern fig file_folder filter fish flag flask flipper flute foil
folder football_boot fountain fox_toy freezer funnel furnace garlic_press gate gear gift giraffe glue goggles gong grape_juice grater gravel
grill guinea_pig hairbrush ham hammock handle hanger harp hat_box hay hedge hinge hockey_stick honey hoop hose hourglass ice_cube igloo
ink iron jam jelly jewel jigsaw jug juice kazoo keyhole kiosk kitten koala lace lamb laser latch leaf leash ledger lens lid_box lighter
lily lime lock log_book lollipop loom lotion magnet mallet map maple marimba mask match mattress medal melon_slice memo mesh metronome
microphone milk mirror_ball mitten mop mosaic motor mouse_pad muffin mushroom nail napkin needle net_bag nest nozzle nut oar oat_bag octopus
oil olive onion_ring otter oven owl padlock paint paintbrush palette pan panda paperclip parcel pasta peach_can peanut pearl pebble
pedal peg penguin pepper_mill perfume petal pickle pie pig pillowcase pin pipe pizza_box plank plaster pliers_case plug plum_cake pocket_knife
pony popcorn porcelain_cup postcard poster pot pottery present propeller pudding pump puppet purse pyramid quill quilt rabbit_toy racket
raft raisin rattle razor receipt recipe_book record reel ribbon rice rocket roller rope rose rubber_band saddle sail salt sandal
saxophone scale screen seal seashell seed shampoo shark shell shield ship shirt shovel_toy silk ski skirt sled sleeve slipper
snail snowman soda sofa_cushion spade spice spider sponge_cake spool squirrel stamp star starfish stone stool straw string submarine sugar suit
swan_toy sweater swing sword syringe table_cloth tambourine tank tart taxi teabag_box telescope thermometer thimble thread ticket tie tiger tile toad
tomato_can tongs tractor train_ticket tray_table treadmill trolley_bag trombone trumpet tub tulip turnip typewriter ukulele urn vacuum vest
visor waffle wagon walnut wand wardrobe_key washer watering_can wax whale wheel whisk wig windmill wool wreath xylophone yarn yoyo zebra zipper""".split()
    ),
    "test": tuple(
        """abacus accordion acorn avocado backgammon banjo beehive bulldozer calendar_page camcorder cauldron chandelier chopsticks cobweb colander crowbar
dictionary dolphin dustpan emerald envelope_opener fiddle flowerpot gazebo gorilla hairdryer harmonica hatchet helicopter jellyfish joystick kangaroo
kettlebell lavender lobster locket mandolin meerkat minivan molecule_model necktie origami paddle peacock pendant pineapple_ring pinwheel projector
radish rhubarb rollerblade sawdust scorpion screwcap seahorse shoelace snorkel stethoscope sundial tarpaulin teaspoon_set toboggan tortoise trampoline
trumpet_case vinyl_record wheelbarrow woodpecker zucchini""".split()
    ),
}
"""Anything at all: a plan must copy names that it has never seen."""

ADJECTIVES: dict[Split, tuple[str, ...]] = {
    "train": (
        "red",
        "blue",
        "green",
        "yellow",
        "white",
        "black",
        "big",
        "small",
        "old",
        "new",
        "wooden",
        "metal",
        "broken",
        "shiny",
        "round",
        "long",
        "soft",
        "empty",
        "heavy",
        "plastic",
    ),
    "test": ("orange", "purple", "tiny", "rusty", "striped", "square", "thick", "glass", "golden"),
}

SURFACES: dict[Split, tuple[str, ...]] = {
    "train": (
        "shelf",
        "cabinet",
        "wardrobe",
        "fridge",
        "bookcase",
        "cupboard",
        "top shelf",
        "counter",
        "locker",
    ),
    "test": ("dresser", "mantelpiece", "bunk", "high shelf", "display case"),
}
UNDERS: dict[Split, tuple[str, ...]] = {
    "train": ("bed", "table", "desk", "sofa", "chair", "bench", "couch", "counter", "car"),
    "test": ("armchair", "piano", "workbench", "coffee table", "crib"),
}
FURNITURE = (
    "sofa",
    "table",
    "lamp",
    "chair",
    "desk",
    "window",
    "carpet",
    "shelf",
    "door",
    "wall",
    "plant",
    "books",
)

NEEDS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("cut paper", "scissors"), ("write", "pen"), ("drink from", "cup"), ("sit on", "chair"), ("eat soup with", "spoon"),
        ("clean the floor", "broom"), ("open a bottle", "opener"), ("tell the time", "clock"), ("read", "book"),
        ("play music", "radio"), ("dry my hands", "towel"), ("keep off the rain", "umbrella"), ("light the room", "lamp"),
        ("drive a nail", "hammer"), ("carry shopping", "bag"), ("brush my teeth", "toothbrush"), ("boil water", "kettle"),
        ("wear on my head", "hat"), ("play with", "ball"), ("sleep on", "bed"), ("cut wood", "saw"), ("dig a hole", "shovel"),
        ("climb up", "ladder"), ("wash my hands", "soap"), ("drink", "juice"), ("eat", "apple"), ("cool the room", "fan"),
    ),
    "test": (
        ("cut bread", "knife"), ("tighten a screw", "screwdriver"), ("warm me up", "heater"), ("take notes", "pencil"),
        ("measure a board", "ruler"), ("catch a fish", "net"), ("paint a wall", "brush"), ("put out a fire", "extinguisher"),
        ("call someone", "phone"), ("cut cloth", "shears"),
    ),
}  # fmt: skip

MESSAGES: dict[Split, tuple[str, ...]] = {
    "train": (
        "hello", "good morning", "I am ready", "all clear", "dinner is ready", "thank you", "hi there", "welcome home",
        "time to go", "the meeting starts", "please wait", "well done", "good night", "I am here", "see you soon",
        "lunch is ready", "the door is open", "mission complete",
    ),
    "test": ("good evening", "the show begins", "stand by", "welcome everyone", "happy birthday", "class is over"),
}  # fmt: skip

QUESTIONS: dict[Split, tuple[tuple[str, str], ...]] = {
    "train": (
        ("is the {x} open", "yes"), ("what colour is the {x}", "red"), ("is the {x} empty", "no"), ("is the {x} broken", "no"),
        ("what is on the {x}", "a cat"), ("who is near the {x}", "nobody"), ("is the {x} clean", "yes"),
        ("is the {x} on", "no"), ("what does the {x} say", "exit"), ("is anyone sitting on the {x}", "no"),
    ),
    "test": (
        ("is the {x} closed", "no"), ("what shape is the {x}", "round"), ("what is near the {x}", "a cup"),
        ("is the {x} wet", "yes"),
    ),
}  # fmt: skip

PEOPLE: dict[Split, tuple[str, ...]] = {
    "train": ("man", "woman", "child", "person", "girl", "visitor", "neighbour", "baby", "runner", "teacher"),
    "test": ("boy", "worker", "postman", "stranger", "old lady"),
}
ANIMALS: dict[Split, tuple[str, ...]] = {
    "train": ("dog", "cat", "bird", "goose", "cow", "fox", "swan", "bull", "monkey"),
    "test": ("hawk", "puppy", "horse", "crow", "goat"),
}
MOVERS: dict[Split, tuple[str, ...]] = {
    "train": ("robot", "ball", "car", "trolley", "bike", "drone", "truck", "kite", "rolling cart"),
    "test": ("frisbee", "scooter", "forklift", "segway", "model plane"),
}

GROUPS: dict[str, dict[Split, tuple[str, ...]]] = {
    "fruit": {
        "train": (
            "apple",
            "banana",
            "pear",
            "plum",
            "cherry",
            "lemon",
            "strawberry",
            "melon",
            "peach",
            "grapes",
        ),
        "test": ("orange", "mango", "kiwi", "pineapple"),
    },
    "vegetables": {
        "train": (
            "carrot",
            "onion",
            "potato",
            "leek",
            "pepper",
            "tomato",
            "cabbage",
            "cucumber",
            "garlic",
            "corn",
        ),
        "test": ("broccoli", "spinach", "lettuce", "celery"),
    },
    "rubbish": {
        "train": (
            "paper",
            "can",
            "tissue",
            "wrapper",
            "crumpled paper",
            "empty bag",
            "used napkin",
            "broken cup",
            "peel",
        ),
        "test": ("old newspaper", "used tissue", "empty can", "candy wrapper"),
    },
    "pens": {
        "train": ("pen", "red pen", "blue pen", "pencil", "marker", "crayon"),
        "test": ("green pen", "black pen", "highlighter", "felt pen"),
    },
    "toys": {
        "train": ("toy car", "doll", "teddy bear", "ball", "toy train", "puzzle"),
        "test": ("toy boat", "toy plane", "rubber duck"),
    },
    "tools": {
        "train": ("hammer", "wrench", "screwdriver", "pliers", "drill", "saw"),
        "test": ("spanner", "chisel", "tape measure"),
    },
    "dishes": {
        "train": ("plate", "mug", "bowl", "glass", "cup", "saucer"),
        "test": ("dinner plate", "teacup", "soup bowl"),
    },
}
ARM_OBJECTS: dict[Split, tuple[str, ...]] = {
    "train": tuple(
        """red_box blue_box green_box red_cube blue_cube green_cube bottle cup phone book eraser ruler block stapler
        key coin spoon fork mug jar can sponge egg battery tape brush card dice candle apple banana pencil pen
        yellow_block white_ball small_box big_box screw cap lid bread cheese tea_bag letter remote
        glue_stick usb_stick white_cube black_box wooden_block""".split()
    ),
    "test": tuple(
        """orange_box purple_box orange_cube pink_block silver_coin scissors teaspoon yogurt toothpaste marble
        calculator notepad cookie charger domino grey_box yellow_cube""".split()
    ),
}
ARM_PLACES: dict[Split, tuple[str, ...]] = {
    "train": (
        "tray",
        "basket",
        "plate",
        "box",
        "bin",
        "bowl",
        "shelf",
        "drawer",
        "mat",
        "left tray",
        "blue bin",
        "rack",
    ),
    "test": ("crate", "red basket", "saucer", "right tray", "cardboard box"),
}
SORT_PLACES: dict[Split, tuple[str, ...]] = {
    "train": (
        "bin",
        "box",
        "tray",
        "basket",
        "bowl",
        "drawer",
        "left basket",
        "right basket",
        "left box",
        "right box",
        "bag",
    ),
    "test": ("crate", "bucket", "green bin", "left tray", "right tray", "cupboard"),
}


def spaced(name: str) -> str:
    """A name of the tables above as people write it."""
    return name.replace("_", " ")
